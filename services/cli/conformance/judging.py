"""What answers say about the contract, and what an agent makes of tool responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from services.cli.conformance.findings import Finding, failed, not_applicable, passed, several
from services.cli.conformance.posting import Answer, Turn
from services.cli.conformance.recording import Run, Seen

_ENVELOPE_FIELDS = ("matched_rule_index", "latency_ms")


def refused(id: str, answers: Sequence[Answer], calls: int = 0) -> Finding:
    """Whether every one of several posts without valid auth was turned away, calling no tool."""
    for answer in answers:
        if answer.problem or not 400 <= answer.status < 500:
            return failed(id, str(answer))
    if calls:
        return failed(id, f"refused, but {calls} tool call(s) were made")
    return passed(id, f"refused with {', '.join(str(answer.status) for answer in answers)}")


def plain_turn(turn: Turn) -> list[Finding]:
    """The checks of the first turn, which has nothing special."""
    answer = turn.answer
    if answer.problem == "timeout":
        return [
            not_applicable("turn_answered", answer.detail),
            failed("in_time", answer.detail),
            not_applicable("final_response", answer.detail),
            not_applicable("rich_answer", answer.detail),
        ]
    if not answer.ok:
        why = "the turn was not answered"
        findings = [failed("turn_answered", str(answer))]
        findings += [not_applicable(id, why) for id in ("in_time", "final_response", "rich_answer")]
        return findings
    return [
        passed("turn_answered", f"answered {answer.status}"),
        passed("in_time", f"{answer.elapsed_s:.2f} s"),
        _final_response(answer),
        _rich_answer(answer),
    ]


def _final_response(answer: Answer) -> Finding:
    if answer.parsed is None:
        return failed("final_response", answer.refusal)
    return passed("final_response", str(answer))


def _rich_answer(answer: Answer) -> Finding:
    if answer.parsed is None:
        return not_applicable("rich_answer", "there is no valid answer")
    if answer.parsed.soft_warnings:
        return failed("rich_answer", "; ".join(answer.parsed.soft_warnings))
    kept = [n for n in ("messages", "metadata") if getattr(answer.parsed, n) is not None]
    if not kept:
        return not_applicable("rich_answer", "the agent gives neither messages nor metadata")
    return passed("rich_answer", f"{' and '.join(kept)} kept")


def as_good(id: str, turn: Turn, plain: Turn, *, calls: bool = False) -> Finding:
    """Whether a turn was answered no worse than the plain one and, if asked, with tool calls."""
    if turn.answer.quality < plain.answer.quality:
        return failed(id, str(turn.answer))
    if calls and plain.run.answered and not turn.run.answered:
        made = f", {_refusals(turn.run.calls)}" if turn.run.calls else ""
        return failed(id, f"answered, but without the tool call it made before{made}")
    return passed(id, str(turn.answer))


def unwrapped(turns: Sequence[Turn]) -> Finding:
    """Whether what the agent does next shows the response, or the envelope around it."""
    called = [turn for turn in turns if turn.run.answered]
    for turn in called:
        said = said_in(turn)
        if envelope := [name for name in _ENVELOPE_FIELDS if name in said]:
            return failed("unwrapped", f"the agent shows the envelope's {' and '.join(envelope)}")
    if any(shows_response(turn) for turn in called):
        return passed("unwrapped", "the agent shows what the tool responded, and no envelope")
    if not called:
        return not_applicable("unwrapped", "no tool call was answered")
    return not_applicable("unwrapped", "no answer shows anything of a tool's response")


def shows_response(turn: Turn) -> bool:
    """Whether something of a tool's response can be recognised in what the agent said."""
    said = said_in(turn)
    return any(text in said for call in turn.run.answered for text in _texts(call, turn.run))


def shape_handled(id: str, turn: Turn, plain: Turn) -> Finding:
    """Whether a turn was answered in which the tool's response had another shape.

    An agent that expects an object of this tool may rightly do nothing with text; whether it does
    so, or lost the text, cannot be told apart.
    """
    if not turn.run.answered:
        return not_applicable(id, "no tool call was made this time")
    finding = as_good(id, turn, plain)
    if finding.outcome == "passed" and not shows_response(turn):
        return not_applicable(id, f"{turn.answer}, which shows nothing of the response")
    return finding


def said_in(turn: Turn) -> str:
    """All that the agent made of tool responses: its answer, transcript, and later arguments."""
    parts = [one.body.decode(errors="replace") for one in turn.run.calls]
    if turn.answer.parsed is not None:
        parts.append(turn.answer.parsed.final_response)
        parts.append(orjson.dumps(turn.answer.parsed.messages).decode())
    return "\n".join(parts)


def _texts(call: Seen, run: Run) -> list[str]:
    """By what a response is recognised: its reference, else the longer texts in it."""
    text = orjson.dumps(call.response).decode()
    return [run.reference] if run.reference in text else list(_strings(call.response))


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str) and len(value) > 3:
        yield value
        yield orjson.dumps(value)[1:-1].decode()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def retried(id: str, turn: Turn, plain: Turn, wait_s: float) -> Finding:
    """Whether the first call, which was refused, was made again, and not before `wait_s`."""
    first = next((one for one in turn.run.calls if one.scripted), None)
    if first is None:
        return not_applicable(id, "no tool call was made this time")

    def like_first(calls: Iterable[Seen]) -> list[Seen]:
        return [c for c in calls if (c.tool, c.arguments) == (first.tool, first.arguments)]

    later = [one for one in like_first(turn.calls) if one is not first]
    # An agent may call the same thing several times anyway.
    if len(later) < max(1, len(like_first(plain.calls))):
        return failed(id, f"{first.tool} was not called again; {turn.answer}")
    waited = min(one.at for one in later) - first.at
    if waited < wait_s * 0.9:
        return failed(id, f"called again after {waited:.2f} s, not {wait_s:g} s")
    return passed(id, f"called again after {waited:.2f} s")


def slow_tool(turn: Turn, plain: Turn, slow_s: float) -> Finding:
    first = next((one for one in turn.run.calls if one.slowed), None)
    if first is None:
        return not_applicable("slow_tool", "no tool call was made this time")
    if not first.replied:
        waited = turn.answer.done_at - first.at
        return failed("slow_tool", f"{first.tool} took {slow_s:g} s; waited {waited:.1f} s at most")
    return as_good("slow_tool", turn, plain)


def _refusals(calls: Sequence[Seen]) -> str:
    return "refused: " + several(one.code for one in calls)
