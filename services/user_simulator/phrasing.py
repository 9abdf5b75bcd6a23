"""How one user words things: the persona's phrases, drawn by the session's seed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.briefs import UserBrief
from schemas.scenario import Scalar
from services.user_simulator.phrases import BANKS, Kind

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


class UnknownFact(ValueError):
    """A text of the scenario names a fact in braces that the user does not have."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Words the acts of one user turn. The same brief and turn always get the same words."""

    brief: UserBrief
    conversation: int
    turn: int

    def opening(self, say: Sequence[str]) -> str:
        """The first message of a conversation."""
        return self._joined(self._phrase(Kind.GREETING, self._goal(say)), Kind.TAIL)

    def next_goal(self, say: Sequence[str]) -> str:
        """What comes after a goal was done."""
        return self._phrase(Kind.NEXT_GOAL, self._goal(say))

    def nudge(self, say: Sequence[str]) -> str:
        """Back to what the user wants."""
        return self._phrase(Kind.NUDGE, self._goal(say))

    def push(self, text: str) -> str:
        """The scenario's own words, unadorned."""
        return self.filled(text)

    def inform(self, names: Sequence[str], *, again: bool) -> str:
        """The named facts; the order of several is the seed's."""
        if len(names) == 1:
            said = self._fact(names[0])
        else:
            order = list(names)
            random.Random(f"{self.brief.seed}:facts:{self.turn}").shuffle(order)
            listed = (f"{label(name)} {spoken(self.brief.facts[name].value)}" for name in order)
            said = self._phrase(Kind.FACTS, ", ".join(listed))
        return self._phrase(Kind.AGAIN, said) if again else said

    def simply(self, kind: Kind) -> str:
        """A phrase with nothing to fill in."""
        return self._draw(kind, self._bank(kind))

    def filled(self, text: str) -> str:
        """The scenario's text with `{fact}` names replaced.

        Raises:
            UnknownFact: a name in braces is not one of the user's facts.
        """

        def value(match: re.Match[str]) -> str:
            fact = self.brief.facts.get(match[1])
            if fact is None:
                raise UnknownFact(f"{match[0]} is not one of the user's facts")
            return spoken(fact.value)

        return _PLACEHOLDER.sub(value, text)

    def _goal(self, say: Sequence[str]) -> str:
        text = self.filled(self._draw("goal", say)).strip()
        return text if re.search(r"\W$", text) else text + "."

    def _fact(self, name: str) -> str:
        fact = self.brief.facts[name]
        template = self._draw(f"fact {name}", fact.say or self._bank(Kind.FACT))
        said = _put(template, name=label(name), value=spoken(fact.value))
        return said[:1].upper() + said[1:] if template.startswith("{name}") else said

    def _phrase(self, kind: Kind, text: str) -> str:
        return _put(self._draw(kind, self._bank(kind)), text=text)

    def _joined(self, text: str, kind: Kind) -> str:
        return f"{text} {self._draw(kind, self._bank(kind))}".rstrip()

    def _bank(self, kind: Kind) -> tuple[str, ...]:
        return BANKS[self.brief.persona.style][kind]

    def _draw(self, what: str, choices: Sequence[str]) -> str:
        """One of the choices: a shuffled deck that is walked through turn by turn.

        So two turns in a row never get the same phrase where there are two to choose from.
        """
        deck = list(choices)
        random.Random(f"{self.brief.seed}:{what}:{self.conversation}").shuffle(deck)
        return deck[self.turn % len(deck)]


def spoken(value: Scalar) -> str:
    """A fact's value as people say it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def label(name: str) -> str:
    """A fact's name as people say it: `order_id` is an 'order ID'."""
    words = re.sub(r"[_\W]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower().split()
    return " ".join("ID" if word == "id" else word for word in words) or name


def _put(template: str, **values: str) -> str:
    # One pass, so that braces in what is put in are left alone.
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)
