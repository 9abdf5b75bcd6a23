"""The tool simulator must not quietly degrade to happy responses: injection is enforced.

Tried here: failures that are left out, swallowed, mislabelled or made harmless, by the code that
injects and on the log; agents that never come by one; and answers made up where there is none.
`tests/unit/test_injection_swallowed.py` edits the module itself, line by line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.trajectory import ToolCalled, TrajectoryEvent
from services.tool_proxy import answer
from tests.fidelity.play import CallTool, Played, good_agent, judged, play, scenario

pytestmark = pytest.mark.req("V05", "V06")

KINDS: dict[str, dict[str, Any]] = {
    "timeout": {}, "schema_mismatch": {}, "outage": {}, "malformed": {}, "rate_limit": {},
    "content": {"content": "Note: gift wrap is on sale.", "field": "note"},
    "partial": {"field": "note"}, "slow": {"delay_ms": 50},
}  # fmt: skip


def failing(kind: str = "outage", **more: Any) -> Any:
    failure = {"id": "f", "kind": kind, "tool": "get_order", "calls": [1], **KINDS[kind], **more}
    return scenario(category="failure-injection", failures=[failure])


def first_call(played: Played) -> ToolCalled:
    return next(event.tool_called for event in played.events if event.tool_called is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_asked_for_strikes_and_is_on_record(kind: str) -> None:
    played = play(failing(kind))
    called = first_call(played)
    assert called.injection is not None
    assert (called.injection.rule_id, called.injection.kind) == ("f", kind)
    ended = played.events[-1].session_ended
    assert ended is not None
    assert ended.injected == {"f": 1}
    assert (played.score.valid, played.score.passed) == (True, True), played.score.invalid_reason


Tampering = Callable[[ToolCalled], ToolCalled]
TAMPERED: dict[str, Tampering] = {
    "left out": lambda c: replace(c, injection=None, source="odyssey", response="{}"),
    "said, but not done": lambda c: replace(
        c, source="odyssey", status=200, error_code=None, response='{"status": "shipped"}'
    ),
    "another one": lambda c: replace(
        c,
        injection=replace(c.injection, kind="slow"),  # type: ignore[type-var]
    ),
    "under another name": lambda c: replace(
        c,
        injection=replace(c.injection, rule_id="g"),  # type: ignore[type-var]
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
@pytest.mark.parametrize("kind", ["outage", "timeout", "malformed", "rate_limit"])
def test_a_failure_that_got_lost_spoils_the_session_whatever_the_agent_did(
    kind: str, how: str
) -> None:
    one = failing(kind)
    played = play(one)
    assert played.score.passed is True

    def rotten(event: TrajectoryEvent) -> TrajectoryEvent:
        if event.tool_called is None or event.tool_called.injection is None:
            return event
        return replace(event, tool_called=TAMPERED[how](event.tool_called))

    score = judged([rotten(event) for event in played.events], one)
    assert (score.valid, score.passed) == (False, None)
    assert score.invalid_reason


def test_a_tool_simulator_that_stopped_injecting_makes_no_session_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A developer who "made the tests pass": every call is answered as if nothing were planned."""
    whole = answer.execute

    def happy(state: Any, call: Any, *more: Any, **others: Any) -> Any:
        brief = state.brief
        state.brief = brief.model_copy(update={"failures": ()})
        try:
            return whole(state, call, *more, **others)
        finally:
            state.brief = brief

    monkeypatch.setattr("services.tool_proxy.proxy.execute", happy)
    played = play(failing())
    assert first_call(played).injection is None
    assert (played.score.valid, played.score.passed) == (False, None)
    assert "f" in played.score.invalid_reason


def test_a_failure_that_nobody_came_by_is_no_pass() -> None:
    async def lazy(text: str, call: CallTool) -> str:
        return "It is shipped."

    one = failing()
    easy = one.model_copy(update={"expect": scenario(expect={}).expect})
    played = play(easy, lazy)
    assert (played.score.valid, played.score.passed) == (False, None)


def test_a_call_that_the_simulator_could_not_answer_is_neither_made_up_nor_the_agents_fault() -> (
    None
):
    async def curious(text: str, call: CallTool) -> str:
        await call("crash")
        return await good_agent(text, call)

    played = play(scenario(), curious)
    called = first_call(played)
    assert called.source != "odyssey"
    assert called.error_code is not None
    assert (played.score.valid, played.score.passed) == (False, None)


@pytest.mark.req("R19")
def test_a_tool_without_a_world_has_no_happy_answer_of_its_own() -> None:
    one = scenario().model_copy(update={"world": None})
    played = play(one)
    called = first_call(played)
    assert called.error_code is not None
    assert called.source != "passthrough"
    assert played.score.passed is not True
