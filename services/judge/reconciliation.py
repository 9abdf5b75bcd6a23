"""Holding what was injected against what was planned: by replaying the session's calls (V06).

The recorded calls are given to the same selectors, with the same seed, that the tool proxy goes
by; so it is known of every call which failure was due on it, if any. Four things are breaches:

- a failure was due, and nothing was injected;
- something was injected where nothing was due, or something else than was due;
- something is recorded as injected, and what the agent was answered does not show it;
- the plan recorded with the session's start is not the one that the seed gives.

Which failure is due on a call is decided by the suite's failures and not by those that the proxy
was told, so failures that were lost on the way to it are missed, too.

**Due, but not possible** is no breach: `content` and `partial` where the tool answered with an
error of its own or with something that has no place for it, and `slow`, `malformed` and these two
where the proxy refused the call because nobody could answer it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.briefs import ToolBrief
from schemas.faults import Failure
from schemas.injection_plan import as_struck, departure, due
from schemas.places import can_cut, can_plant
from schemas.selection import UNSELECTED, Moment, fits, in_time
from schemas.trajectory import AGENT
from services.judge.outcomes import MalformedBrief, at
from services.judge.trajectory import Call, Trajectory, UnreadableTrajectory

_INSTEAD = frozenset({"timeout", "schema_mismatch", "outage", "rate_limit"})
_ABOUT_TIME = ("world", "elapsed_s")
_KEPT = re.compile(r"kept (\d+) of \d+ of (.+)")
_DROPPED = re.compile(r"dropped (.+)")


@dataclass
class Account:
    """What became of one failure in a session."""

    failure: Failure
    matching: list[Call] = field(default_factory=list)
    struck: list[Call] = field(default_factory=list)
    missed: list[Call] = field(default_factory=list)
    """Due, possible, and nothing was injected."""

    @property
    def planned(self) -> list[Call]:
        """The matching calls that it may strike, whatever the dice say."""
        calls, burst = self.failure.calls, self.failure.burst
        return [
            call
            for ordinal, call in enumerate(self.matching, start=1)
            if not calls or any(ordinal - burst < number <= ordinal for number in calls)
        ]


@dataclass
class Reconciliation:
    """Every failure's account, in the order of the brief, and the other breaches in words."""

    accounts: list[Account]
    breaches: list[str] = field(default_factory=list)


def reconcile(
    trajectory: Trajectory, failures: Sequence[Failure], multiplier: float
) -> Reconciliation:
    """The accounts of a session's failures, in which canaries are filled in already.

    Raises:
        UnreadableTrajectory: the session's start does not tell how its world's time passes.
    """
    seed = trajectory.start.seed
    found = Reconciliation([Account(failure) for failure in failures])
    clock = _clock(trajectory) if failures else ToolBrief(seed=seed)
    for call in trajectory.calls:
        if call.body.requestor != AGENT or call.body.error_code in UNSELECTED:
            continue
        conversation = trajectory.events[call.position].conversation
        moment = Moment(conversation, call.turn, call.body.call)
        expected = None
        for account in found.accounts:
            failure = account.failure
            if not (fits(failure, call.tool, call.arguments) and in_time(failure, clock, moment)):
                continue
            account.matching.append(call)
            used_up = failure.times and len(account.struck) >= failure.times
            drawn = due(failure, seed, multiplier, len(account.matching))
            if expected is None and drawn and not used_up:
                expected = account
        found.breaches += _settled(call, expected, found.accounts, seed)
    return found


def plan_breach(trajectory: Trajectory, failures: Sequence[Failure], multiplier: float) -> str:
    """What is wrong with the recorded plan, by the failures as the suite has them."""
    start = trajectory.start
    return departure(start.injection_plan, failures, start.seed, multiplier)


def _settled(
    call: Call, expected: Account | None, accounts: Sequence[Account], seed: int
) -> Iterator[str]:
    """Enter a call into the accounts; what was wrong with it, but for what was missed."""
    injection = call.body.injection
    if injection is None:
        if expected is not None and _possible(call, expected.failure):
            expected.missed.append(call)
        return
    for account in accounts:
        if account.failure.id == injection.rule_id:
            account.struck.append(call)
    if expected is None:
        yield f"{injection.rule_id} was injected at {call.step} and was not planned there"
        return
    failure = expected.failure
    if (injection.rule_id, injection.kind) != (failure.id, failure.kind):
        yield (
            f"failure {failure.id} ({failure.kind}) was due on {call.step} and "
            f"{injection.rule_id} ({injection.kind}) was injected"
        )
        return
    missing = _unseen(call, as_struck(failure, seed, len(expected.matching)))
    if missing:
        yield f"failure {failure.id} is recorded at {call.step}, but {missing}"


def _possible(call: Call, failure: Failure) -> bool:
    if failure.kind in _INSTEAD:
        return True
    if call.body.error_code is not None:
        return False
    if failure.kind == "malformed":
        return True
    if call.body.source == "transport_error":
        return False
    if failure.kind == "slow":
        return True
    can = can_plant if failure.kind == "content" else can_cut
    return not _is_tool_error(call.response) and can(failure.field, call.response)


def _unseen(call: Call, struck: Failure) -> str:
    """How the answer contradicts that a failure struck; empty where it does not."""
    response, detail = call.response, call.body.injection.detail if call.body.injection else ""
    if struck.kind in ("timeout", "slow") and call.body.latency_ms < struck.delay_ms:
        return f"the answer came after {call.body.latency_ms} of {struck.delay_ms} ms"
    if struck.kind in _INSTEAD:
        error = response.get("error") if isinstance(response, dict) else None
        shown = isinstance(error, dict) and error.get("code") == struck.kind
        return "" if shown else f"the answer is no {struck.kind}"
    if struck.kind == "malformed":
        return "the answer can be read as JSON" if _is_json(call.body.response) else ""
    if struck.kind == "content":
        return "" if _says(response, struck.content) else "the answer is without its text"
    if struck.kind == "partial":
        return "" if _is_cut(response, detail) else f"the answer is not as told: {detail!r}"
    return ""


def _is_cut(response: Any, detail: str) -> bool:
    """Whether an answer lacks what the injection says was left out of it."""
    try:
        if kept := _KEPT.fullmatch(detail):
            items = response if kept[2] == "the list" else at(response, kept[2])
            return isinstance(items, list) and len(items) == int(kept[1])
        if dropped := _DROPPED.fullmatch(detail):
            parent, _, last = dropped[1].rpartition("/")
            within, last = at(response, parent), last.replace("~1", "/").replace("~0", "~")
            # What followed in a list has moved up, so there nothing can be told.
            return isinstance(within, list) or (isinstance(within, dict) and last not in within)
    except MalformedBrief:
        return False
    return not detail


def _says(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        return any(_says(item, text) for item in value.values())
    return isinstance(value, list) and any(_says(item, text) for item in value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_tool_error(answer: Any) -> bool:
    error = answer.get("error") if isinstance(answer, dict) and len(answer) == 1 else None
    return isinstance(error, dict) and "code" in error and "message" in error


def _clock(trajectory: Trajectory) -> ToolBrief:
    """What the session's start says about how its world's time passes."""
    try:
        told = json.loads(trajectory.start.tool_brief)
        about = {name: told[name] for name in _ABOUT_TIME if name in told}
        return ToolBrief.model_validate({**about, "seed": trajectory.start.seed})
    except (TypeError, ValueError) as error:
        raise UnreadableTrajectory(f"the tool brief cannot be read: {error}") from None
