"""How one user words things: the persona's phrases, drawn by the session's seed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from schemas.briefs import UserBrief
from schemas.model import Scalar
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
            said = self._phrase(Kind.FACTS, self._listed(names))
        return self._phrase(Kind.AGAIN, said) if again else said

    def correct(self, name: str) -> str:
        """The fact as it really is, to an agent that got it wrong."""
        return self._stating(name, f"correct {name}", self._bank(Kind.CORRECT))

    def wrong(self, say: Sequence[str]) -> str:
        """What the user wants, to an agent that took it for something else."""
        return self._phrase(Kind.WRONG, self._goal(say))

    def volunteered(self) -> list[str]:
        """Names of the facts that this persona tells unasked, drawn for the session."""
        share, draw = self.brief.persona.volunteers, random.Random(f"{self.brief.seed}:volunteers")
        return [name for name in self.brief.facts if draw.random() < share]

    def volunteer(self, names: Sequence[str]) -> str:
        """Facts that nobody has asked for yet."""
        return self._phrase(Kind.VOLUNTEER, self._listed(names))

    def report(self, kind: Kind, say: Sequence[str], response: str, number: int) -> str:
        """What came of something the user did, the `number`-th since it last spoke.

        Raises:
            UnknownFact: a name in braces is not one of the user's facts.
        """
        template = self._draw(f"report {number}", say or self._bank(kind))
        if not say:
            return _put(template, text=response.rstrip(" .") or "nothing")
        # What the tool says is put in last, so that braces in it are left alone.
        parts = template.split("{response}")
        return response.join(map(self.filled, parts))

    def valued(self, text: str) -> Scalar:
        """The scenario's text as an argument: a `{fact}` alone is the fact's own value.

        Raises:
            UnknownFact: a name in braces is not one of the user's facts.
        """
        match = _PLACEHOLDER.fullmatch(text)
        fact = self.brief.facts.get(match[1]) if match else None
        return self.filled(text) if fact is None else fact.value

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
        say = self.brief.facts[name].say
        return self._stating(name, f"fact {name}", say or self._bank(Kind.FACT))

    def _stating(self, name: str, what: str, templates: Sequence[str]) -> str:
        template = self._draw(what, templates)
        value = spoken(self.brief.facts[name].value)
        said = _put(template, name=label(name), value=value)
        return said[:1].upper() + said[1:] if template.startswith("{name}") else said

    def _listed(self, names: Sequence[str]) -> str:
        order = list(names)
        random.Random(f"{self.brief.seed}:facts:{self.turn}").shuffle(order)
        return ", ".join(f"{label(name)} {spoken(self.brief.facts[name].value)}" for name in order)

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


_ID = r"(?:id|number)"


@lru_cache(maxsize=4096)
def name_pattern(name: str) -> re.Pattern[str]:
    """A fact's name as people say it: `order_id` is found in 'order number' and 'Order ID'."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)) or [name]
    parts = [
        _ID if word.lower() in ("id", "number") and len(words) > 1
        else "e-?mail" if word.lower() == "email"
        else re.escape(word)
        for word in words
    ]  # fmt: skip
    return re.compile(r"\b" + r"[\s_-]*".join(parts) + r"s?\b", re.IGNORECASE)
