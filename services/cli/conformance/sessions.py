"""What turns say about how well an agent keeps its sessions apart, in space and in time."""

from __future__ import annotations

from collections.abc import Sequence

from services.cli.conformance.findings import (
    Finding,
    failed,
    not_applicable,
    of_calls,
    passed,
    several,
)
from services.cli.conformance.posting import Turn
from services.cli.conformance.recording import Run, Seen

MIN_SECRET = 8
"""Shorter ones are found in innocent words."""


def before_first_call(turn: Turn) -> float:
    """Seconds from posting a turn to its first call; 0 without one."""
    posted = turn.answer.done_at - turn.answer.elapsed_s
    return max(0.0, min((one.at for one in turn.run.calls), default=posted) - posted)


def apart(turns: Sequence[Turn], plain: Turn, runs: Sequence[Run]) -> Finding:
    """Whether turns posted at once kept to their own token, path and data.

    `runs`: all there were, for an answer may also show what belongs to an earlier turn.
    """
    if not any(turn.run.calls for turn in turns):
        worse = [turn for turn in turns if turn.answer.quality < plain.answer.quality]
        if worse:
            return failed("sessions_apart", f"of turns posted at once, one was {worse[0].answer}")
        return not_applicable("sessions_apart", "no tool call was made that could be mixed up")
    by_token = {turn.run.token: turn.run for turn in turns}
    for turn in turns:
        for call in turn.run.calls:
            others = [by_token[t] for t in call.tokens if t in by_token]
            if call.code == "token_invalid" and any(run is not turn.run for run in others):
                return failed("sessions_apart", "a call used one turn's URL and another's token")
    counts = [len([c for c in turn.run.calls if not c.scripted]) for turn in turns]
    usual = len(plain.calls)
    if min(counts) == 0 and max(counts) > usual:
        told = ", ".join(map(str, counts))
        return failed("sessions_apart", f"one turn made another's calls: {told} calls a turn")
    for turn in turns:
        body = turn.answer.body.decode(errors="replace")
        if any(run.reference in body for run in runs if run is not turn.run):
            return failed("sessions_apart", "an answer shows what another turn's tool responded")
        if turn.answer.quality < plain.answer.quality:
            return failed("sessions_apart", f"of turns posted at once, one was {turn.answer}")
    return passed("sessions_apart", f"{len(turns)} turns at once, each with its own calls")


def no_late_call(turns: Sequence[Turn]) -> Finding:
    late = [
        f"{one.tool or one.kind}, {one.at - turn.answer.done_at:.2f} s after the answer"
        for turn in turns
        if not turn.answer.problem
        for one in turn.run.seen
        if one.at > turn.answer.done_at
    ]
    if late:
        return failed("no_late_call", several(late))
    return of_calls("no_late_call", turns, lambda _: "")


def token_kept(
    turns: Sequence[Turn], auth_value: str | None, strays: Sequence[Seen] = ()
) -> Finding:
    """No token, nor the auth value, anywhere but where it belongs."""
    secrets = {turn.run.token: "the run token" for turn in turns}
    own = auth_value.rpartition(" ")[2] if auth_value else ""
    if len(own) < MIN_SECRET:
        own = ""
    if own:
        secrets[own] = "the auth value"
    places = [("an answer", turn.answer.body.decode(errors="replace")) for turn in turns]
    for one in [*strays, *(one for turn in turns for one in turn.run.seen)]:
        name = one.tool or one.kind
        places.append((f"the URL of {name}", f"{one.path}?{one.query}"))
        places.append((f"the body of {name}", one.body.decode(errors="replace")))
        if own and any(own in value for _, value in one.headers):
            return failed("token_kept", f"the auth value is in the headers of {name}")
    for place, text in places:
        for secret, secret_name in secrets.items():
            if secret in text:
                return failed("token_kept", f"{secret_name} is in {place}")
    return passed("token_kept", "seen nowhere else")
