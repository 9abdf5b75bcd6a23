"""Assertions over the events of an agent's own runtime, its tool calls and what it says.

All of `goals.assertions` are one gate, `assertions`. It fails when one of them fails. It passes
when all of them hold. Otherwise it is unscored: what the session cannot show, what no model was
there to score and what is malformed counts neither way, and never as a pass. The reason tells every
assertion's outcome; the value is the fraction that holds.

The citations are the steps of the failing assertions; when none fails, of the undecided ones; when
all hold, of all. docs/assertions.md defines what each type means.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from schemas.assertions import Assertion, parse
from schemas.briefs import JudgeBrief
from schemas.patterns import clean
from schemas.scores import DimensionScore
from services.judge.assertions import checks, responses, sequences, utterances
from services.judge.assertions.facts import Facts, read_facts
from services.judge.assertions.outcome import Outcome, Verdict, unscored
from services.judge.assertions.rating import ResponseJudge, problem
from services.judge.evaluators.criteria import NO_MODEL
from services.judge.evaluators.scoring import cited, count
from services.judge.trajectory import Trajectory

NAME = "assertions/1"
DIMENSION = "assertions"

_WORDS = 600
_ORDER = (Verdict.FAILS, Verdict.NOT_APPLICABLE, Verdict.UNSCORED, Verdict.HOLDS)


async def evaluate_all(
    trajectory: Trajectory,
    brief: JudgeBrief,
    judge: ResponseJudge | None,
    no_judge: str = NO_MODEL,
) -> tuple[DimensionScore, ...]:
    """One gate where the scenario has assertions, else none. `no_judge`: why there is no model."""
    entries = brief.goals.assertions
    if not entries:
        return ()
    facts = read_facts(trajectory)
    outcomes = await asyncio.gather(*(_outcome(entry, facts, judge, no_judge) for entry in entries))
    numbered = [
        f"({number}) {_kind(entry)} {outcome.verdict}: {_cut(outcome.words)}"
        for number, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True), start=1)
    ]
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    tally = ", ".join(f"{one}: {verdicts[one]}" for one in _ORDER if verdicts[one])
    telling = next(verdict for verdict in _telling() if any(o.verdict in verdict for o in outcomes))
    decided = Verdict.FAILS in verdicts or verdicts[Verdict.HOLDS] == len(outcomes)
    models = sorted({outcome.model for outcome in outcomes if outcome.model})
    return (
        DimensionScore(
            dimension=DIMENSION,
            status="scored" if decided else "unscored",
            value=verdicts[Verdict.HOLDS] / len(outcomes) if decided else None,
            passed=Verdict.FAILS not in verdicts if decided else None,
            reason=clean(f"{count(len(outcomes), 'assertion')} ({tally}). {'. '.join(numbered)}"),
            citations=cited(s for o in outcomes if o.verdict in telling for s in o.steps),
            evaluator=" ".join((NAME, *models)),
        ),
    )


async def _outcome(
    entry: Mapping[str, Any] | str, facts: Facts, judge: ResponseJudge | None, no_judge: str
) -> Outcome:
    try:
        assertion = parse(entry)
    except ValidationError as error:
        return unscored(f"it is malformed ({problem(error)})")
    if assertion.kind.startswith("generative_response_"):
        return await responses.rate(assertion.body, facts, judge, no_judge)
    return _checked(assertion, facts)


def _checked(assertion: Assertion, facts: Facts) -> Outcome:
    body = assertion.body
    match assertion.kind:
        case "flow_started":
            return checks.flow_started(body, facts)
        case "flow_completed" | "flow_cancelled":
            return checks.flow_ended(assertion.kind, body, facts)
        case "action_executed":
            return checks.action_executed(body, facts)
        case "slot_was_set":
            return checks.slots_were_set(body, facts)
        case "slot_was_not_set":
            return checks.slots_were_not_set(body, facts)
        case "bot_uttered":
            return utterances.uttered(body, facts)
        case "bot_did_not_utter":
            return utterances.not_uttered(body, facts)
        case "pattern_clarification_contains":
            return checks.clarification_contains(body, facts)
        case "sequencing":
            return sequences.in_sequence(body, facts)
        case kind:
            raise AssertionError(kind)


def _telling() -> tuple[frozenset[Verdict], ...]:
    open_ = frozenset({Verdict.NOT_APPLICABLE, Verdict.UNSCORED})
    return frozenset({Verdict.FAILS}), open_, frozenset({Verdict.HOLDS})


def _kind(entry: Mapping[str, Any] | str) -> str:
    return " ".join(entry)[:80] if isinstance(entry, Mapping) else entry[:80]


def _cut(words: str) -> str:
    return words if len(words) <= _WORDS else words[: _WORDS - 1] + "…"
