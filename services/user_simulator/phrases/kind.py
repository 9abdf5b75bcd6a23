"""What there is to say: the kinds of phrases that every bank has."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """What a phrase does in the conversation."""

    GREETING = "greeting"
    TAIL = "tail"
    NEXT_GOAL = "next goal"
    NUDGE = "nudge"
    FACT = "fact"
    FACTS = "facts"
    AGAIN = "again"
    YES = "yes"
    NO = "no"
    RIGHT = "right"
    CORRECT = "correct"
    WRONG = "wrong"
    VOLUNTEER = "volunteer"
    IMPATIENT = "impatient"
    UNKNOWN = "unknown"
    RETRY = "retry"
    WAIT = "wait"
    THANKS = "thanks"
    QUIT = "quit"
    DID = "did"
    DID_NOT = "did not"


Bank = Mapping[Kind, tuple[str, ...]]
