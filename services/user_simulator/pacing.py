"""How long users think before they speak."""

from __future__ import annotations

from schemas.briefs import UserBrief


def pause_ms(brief: UserBrief, turn: int) -> int:
    """How long this user thinks before a turn: the same in every run of one seed."""
    if brief.think is None:
        return brief.think_ms
    return brief.think.draw(f"{brief.seed}:think:{turn}")
