"""How the agenda's users behave against agents of every kind.

`python -m tests.bench.users [--sessions N]` plays N sessions, half of them against the demo agent
and half against scripted ones that are of no use, and prints JSON: how they ended, what was said
that must not be said, and how much the wording varies. What must not be said is looked for here by
rules of its own, which share nothing with the simulator's validity checks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.briefs import UserBrief
from services.user_simulator.agenda import plan
from services.user_simulator.phrasing import spoken
from services.user_simulator.simulator import AgentSaid, History, UserSaid
from services.user_simulator.validity import checked
from tests.integration.offline import Offline, Played, demo_suite
from tests.support.users import (
    REFUND,
    RETURN,
    STYLES,
    bound,
    brief,
    conversation,
    heard,
    is_over,
)

DEMO = "demo"
TRIALS = 10
"""Wording is measured over so many trials of a scenario: distinct-n falls as texts grow."""
USELESS: dict[str, Callable[[int], str]] = {
    "silent": lambda _n: "",
    "looping": lambda _n: "I am sorry, I did not understand. What do you mean?",
    "over-asking": lambda n: (
        "Before we start, please provide "
        + ("your email and your date of birth.", "your order number and mother's maiden name.",
           f"your customer code K-{n}00 and your passport number.")[n % 3]
    ),
    "contradicting": lambda n: (
        f"I see, your order number is ORD-{70000 + n}. Shall I go ahead with it?"
        if n % 2
        else f"Your email is someone{n}@else.example, right?"
    ),
    "refusing": lambda n: ("I'm sorry, I can't do that.", "That is not possible.")[n % 2],
    "hostile": lambda n: (
        "You again. Learn to write first.", "Nobody has time for people like you. Go away.",
        "I could not care less. Anything else?", "What is wrong with you?",
    )[n % 4],
}  # fmt: skip

_TOLD = re.compile(r"[\w.+-]*[\d@][\w@+-]*(?:[.][\w@-]+)*")
_AGENT_PHRASES = (
    "how can i help", "how may i help", "i can help with", "anything else i can",
    "your refund has been", "has been issued", "please provide", "what is your",
    "what is the order", "shall i go ahead", "i have verified", "your identity",
    "a colleague", "our records", "i'm an ai", "assistant", "you're welcome",
    "i will look into", "let me check your",
)  # fmt: skip


@dataclass
class Outcome:
    """One session, and what was wrong with it."""

    agent: str
    scenario: str
    style: str
    ending: str
    limit: int
    said: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Told, though nobody told the user."""
    unasked: list[str] = field(default_factory=list)
    """Facts that were told although the agent had not come near them."""
    inverted: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Play, print, and fail if anything was said or left out that must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.users")
    parser.add_argument("--sessions", type=int, default=2000)
    started = time.process_time()
    outcomes = battery(parser.parse_args(arguments).sessions)
    report = summary(outcomes) | {"cpu_seconds": round(time.process_time() - started, 1)}
    print(json.dumps(report, indent=2))
    return 1 if any(report["wrong"].values()) else 0


def battery(sessions: int) -> list[Outcome]:
    """Half the sessions against the demo agent, half against the useless ones."""
    outcomes = asyncio.run(against_demo(sessions // 2))
    for number in range(sessions - len(outcomes)):
        agent = list(USELESS)[number % len(USELESS)]
        outcomes.append(against_useless(agent, number // len(USELESS)))
    return outcomes


async def against_demo(sessions: int) -> list[Outcome]:
    """Whole sessions of the demo's suite, seed after seed."""
    offline, outcomes, seed = Offline(demo_suite(), "good"), list[Outcome](), 0
    while len(outcomes) < sessions:
        for played in await offline.run(seed):
            outcomes.append(_examined(*_demo_session(played)))
        seed += 1
    return outcomes[:sessions]


def against_useless(agent: str, seed: int) -> Outcome:
    """A user of a style, patience and openness that the seed selects."""
    style = STYLES[seed % len(STYLES)]
    user = brief(
        conversation(RETURN, REFUND, pushes=("I insist.", "Ask your manager."),
                     consents=seed % 4 != 0),
        conversation(RETURN, after="2d"),
        style=style, patience=1 + seed % 6, volunteers=(0, 0, 0.5, 1)[seed // 5 % 4], seed=seed,
    )  # fmt: skip
    limit, history = bound(user), History()
    outcome = Outcome(agent, "return", style, "no end", limit)
    for number in range(limit):
        move = checked(user, history, plan(user, history))
        if move.invalid:
            outcome.invalid.append(move.invalid)
        history = heard(history, move)
        if is_over(move):
            outcome.ending = str(move.ending or "invalid")
            break
        if move.ending is None:
            history = (*history, AgentSaid(history[-1].conversation, USELESS[agent](number)))
    return _examined(outcome, user, history)


def _demo_session(played: Played) -> tuple[Outcome, UserBrief, History]:
    start, end = played.events[0].session_started, played.events[-1].session_ended
    assert start is not None
    assert end is not None
    user = UserBrief.model_validate_json(start.user_brief)
    outcome = Outcome(
        DEMO, played.scenario.id, user.persona.style, end.reason, played.scenario.limits.turns
    )
    history: History = ()
    for event in played.events:
        if turn := event.user_turn:
            history = (*history, UserSaid(event.conversation, turn.text, turn.ending is not None))
            if turn.invalid:
                outcome.invalid.append(turn.invalid)
        elif answer := event.agent_turn:
            history = (*history, AgentSaid(event.conversation, answer.final_response))
    return outcome, user, history


def _examined(outcome: Outcome, user: UserBrief, history: History) -> Outcome:
    authored = " ".join(_authored(user))
    values = [spoken(fact.value) for fact in user.facts.values()]
    told, agent_said = f"{authored} {' '.join(values)} {user.narrative}".casefold(), ""
    for entry in history:
        text = entry.text.casefold()
        if isinstance(entry, AgentSaid):
            agent_said += " " + text
            continue
        outcome.said.append(entry.text)
        known = told + agent_said
        outcome.unknown += [t for t in _TOLD.findall(text) if t.strip(".+-") not in known]
        # What the author wrote is the matter, whoever says it.
        own = text
        for part in sorted(_authored(user), key=len, reverse=True):
            own = own.replace(part.casefold(), " ")
        outcome.inverted += [phrase for phrase in _AGENT_PHRASES if phrase in own]
        if not user.persona.volunteers:
            outcome.unasked += _unasked(user, text, agent_said, authored.casefold())
    return outcome


def _authored(user: UserBrief) -> Iterator[str]:
    for one in user.conversations:
        for text in (*(say for goal in one.goals for say in goal.say), *one.pushes):
            for name, fact in user.facts.items():
                text = text.replace("{" + name + "}", spoken(fact.value))
            yield text


def _unasked(user: UserBrief, text: str, agent_said: str, authored: str) -> Iterator[str]:
    for name, fact in user.facts.items():
        value = spoken(fact.value).casefold()
        near = any(word in agent_said for word in name.split("_") if len(word) > 2)
        near = near or any(pattern.found_in(agent_said) for pattern in fact.ask)
        # A lone word such as yes says nothing.
        if len(value) > 3 and value in text and value not in authored and not near:
            yield name


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of all sessions."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.agent].append(one)
    return {
        "sessions": len(outcomes),
        "personas": Counter(one.style for one in outcomes),
        "wrong": {
            "unknown facts told": sum(len(one.unknown) for one in outcomes),
            "facts told unasked": sum(len(one.unasked) for one in outcomes),
            "role inversions": sum(len(one.inverted) for one in outcomes),
            "called invalid": sum(len(one.invalid) for one in outcomes),
            "no stated end": sum(not stated_end(one) for one in outcomes),
            "over the limit": sum(len(one.said) > one.limit for one in outcomes),
        },
        "agents": {agent: _figures(group) for agent, group in groups.items()},
        "wording": wording([one for one in outcomes if one.agent == DEMO]),
    }


def stated_end(outcome: Outcome) -> bool:
    """Whether the user itself said that it was over, and why."""
    return outcome.ending in ("goal_met", "gave_up")


def _figures(group: Sequence[Outcome]) -> dict[str, Any]:
    turns = [len(one.said) for one in group]
    return {
        "sessions": len(group),
        "endings": Counter(one.ending for one in group),
        "personas": Counter(one.style for one in group),
        "user_turns": {"median": statistics.median(turns), "max": max(turns)},
    }


def wording(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Distinct openings, and distinct-1 and distinct-2, over the trials of each scenario."""
    trials: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        trials[one.scenario].append(one)
    groups = [group[:TRIALS] for group in trials.values() if len(group) > 1]
    if not groups:
        return {}
    turns = [[text for one in group for text in one.said] for group in groups]
    styles = {style: [t for g in groups for o in g if o.style == style for t in o.said]
              for style in STYLES}  # fmt: skip
    return {
        "scenarios": len(groups),
        "trials": {"min": min(map(len, groups)), "max": max(map(len, groups))},
        "distinct_openings": _mean(len({o.said[0] for o in g}) / len(g) for g in groups),
        "distinct_sessions": _mean(len({tuple(o.said) for o in g}) / len(g) for g in groups),
        "distinct_1": _mean(distinct(texts, 1) for texts in turns),
        "distinct_2": _mean(distinct(texts, 2) for texts in turns),
        "by_persona": {
            style: {"distinct_1": distinct(texts, 1), "distinct_2": distinct(texts, 2)}
            for style, texts in styles.items()
        },
    }


def distinct(texts: Iterable[str], n: int) -> float:
    """Different n-grams per n-gram (Li et al., 2016); 0 where there are none."""
    grams = [
        tuple(words[start : start + n])
        for words in (re.findall(r"\w+", text.casefold()) for text in texts)
        for start in range(len(words) - n + 1)
    ]
    return round(len(set(grams)) / len(grams), 4) if grams else 0.0


def _mean(values: Iterable[float]) -> float:
    return round(statistics.fmean(values), 4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
