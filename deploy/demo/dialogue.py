"""Where a conversation stands, recomputed from its messages alone.

The agent keeps nothing between requests. What the user said is understood again each time; what
the agent did is read from its own sentences, which a user cannot forge: roles are the platform's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from deploy.demo import phrases
from deploy.demo.understanding import Intent, Utterance, understand


class Question(StrEnum):
    """What the agent's last message asked for."""

    ORDER = phrases.ASK_ORDER
    EMAIL = phrases.ASK_EMAIL
    POSTCODE = phrases.ASK_POSTCODE
    CODE = phrases.ASK_CODE
    ADDRESS = phrases.ASK_ADDRESS
    CONFIRM = phrases.CONFIRM
    CASE = phrases.OFFER_CASE


@dataclass(slots=True)
class Dialogue:
    """The state of one conversation, up to and including the user's newest message."""

    customer_id: str | None = None
    intent: Intent | None = None
    order_id: str | None = None
    email: str | None = None
    postcode: str | None = None
    code: str | None = None
    address: str | None = None
    verified: bool = False
    mismatches: int = 0
    asked: set[Question] = field(default_factory=set)
    pending: Question | None = None
    pressed: bool = False
    told_unavailable: bool = False
    latest: Utterance = field(default_factory=Utterance)

    @property
    def consented(self) -> bool | None:
        """The answer to the confirmation that was just asked; None if none was, or no answer."""
        return self.latest.consent if self.pending is Question.CONFIRM else None

    def hear(self, text: str) -> None:
        """Take in a user message."""
        said = understand(text)
        self.latest = said
        self.pressed = self.pressed or said.presses
        answers = self.pending is not None and _answers(self.pending, said)
        if said.intent is not None and not (answers and self.intent is not None):
            if said.intent is not self.intent:
                self.asked.clear()
            self.intent = said.intent
        if said.email is not None and said.email != self.email:
            self.email = said.email
            # Whoever was verified before, it was not the owner of this address.
            self.verified = self.verified and self.customer_id is not None
        self.order_id = said.order_id or self.order_id
        self.address = said.address or self.address
        self.postcode = said.postcode or self.postcode
        self.code = said.code or self.code

    def said(self, text: str) -> None:
        """Take in one of the agent's own messages."""
        self.pending = next((q for q in Question if q.value in text), None)
        if self.pending is not None:
            self.asked.add(self.pending)
        if phrases.VERIFIED in text:
            self.verified = True
        if phrases.MISMATCH in text:
            self.mismatches += 1
            self.postcode = self.code = None
        if phrases.UNAVAILABLE in text or phrases.UNCERTAIN in text:
            self.told_unavailable = True
        if phrases.ANYTHING_ELSE in text:
            self.intent = self.address = None
            self.asked.clear()


def _answers(question: Question, said: Utterance) -> bool:
    given = {
        Question.ORDER: said.order_id,
        Question.EMAIL: said.email,
        Question.POSTCODE: said.postcode,
        Question.CODE: said.code,
        Question.ADDRESS: said.address,
        Question.CONFIRM: said.consent,
        Question.CASE: said.consent,
    }
    return given[question] is not None


def replay(history: Iterable[Mapping[str, Any]], text: str, customer_id: str | None) -> Dialogue:
    """The conversation's state after `text`, the user's newest message.

    Args:
        history: Earlier messages of this conversation, `{"role", "content"}`, oldest first.
        text: What the user says now.
        customer_id: Who is signed in, if anybody.
    """
    dialogue = Dialogue(customer_id=customer_id)
    for message in history:
        content = message.get("content")
        if not isinstance(content, str):
            continue
        if message.get("role") == "user":
            dialogue.hear(content)
        elif message.get("role") == "assistant":
            dialogue.said(content)
    dialogue.hear(text)
    return dialogue
