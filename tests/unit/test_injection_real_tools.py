"""Failures meant for real tools: whatever those answer, and however calls overlap, what the proxy
recorded is what the judge finds to have been due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas.briefs import ToolSpec
from services.judge.trajectory import read
from services.judge.validity import invalid_reason
from services.tool_proxy.passthrough import RealAnswer, RealCall, failure
from tests.support.injected import KINDS, judge_brief_of
from tests.support.tool_proxy import Bench, ended, make_brief

pytestmark = pytest.mark.req("V06", "R19")

TOOLS = tuple(
    ToolSpec(name=name, input_schema={"type": "object"}, mode="passthrough", target="https://t")
    for name in ("real", "other")
)
ANSWERS = (
    RealAnswer('{"id": 7, "note": "as it was", "items": [1, 2, 3]}'),
    RealAnswer('{"error": {"code": "not_found", "message": "no such thing"}}'),
    RealAnswer("plain words"),
    RealAnswer("17"),
    RealAnswer("[]"),
    failure("outage", "real is unavailable.", status=503, reason="connection refused"),
    RealAnswer("\x01" * 300_000),
)


def session(
    failures: list[dict[str, Any]], *, together: int, answers: tuple[RealAnswer, ...] = ANSWERS
) -> tuple[str, list[str | None]]:
    """Why the session does not count, and which failure struck each call."""
    asked = 0

    async def real(call: RealCall) -> RealAnswer:
        nonlocal asked
        asked += 1
        mine = answers[asked % len(answers)]
        # Later calls come back first.
        for _ in range(20 - asked % 7):
            await asyncio.sleep(0)
        return mine

    bench = Bench(make_brief(failures=failures, tools=TOOLS, max_calls=500, seed=5),
                  real_tools=real)  # fmt: skip

    async def conduct() -> None:
        for number in range(0, 48, together):
            await asyncio.gather(*(
                bench.call(TOOLS[n % 3 % 2].name, {"n": n}, key=f"k{n}")
                for n in range(number, number + together)
            ))  # fmt: skip

    asyncio.run(conduct())
    bench.close()
    bench.log.put(ended())
    told = [call.injection and call.injection.rule_id for call in bench.log.calls()]
    return invalid_reason(read(bench.log.events()), judge_brief_of(failures), ()), told


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("together", [1, 6])
def test_every_kind_with_every_answer(kind: str, together: int) -> None:
    fields = KINDS[kind]
    failures = [{"id": "f", "kind": kind, "probability": 0.5, "required": False, **fields}]
    why, told = session(failures, together=together)
    assert why == ""
    assert "f" in told
    assert None in told


@pytest.mark.parametrize(
    "fields",
    [
        {"tool": "real", "calls": [2, 5], "burst": 2},
        {"tool": "other", "after": "7 calls", "until": "19 calls"},
        {"tool": "real", "times": 3, "after": "4 calls", "probability": 0.5},
    ],
)
def test_calls_at_the_same_time_are_numbered_as_they_are_recorded(fields: dict[str, Any]) -> None:
    failures = [
        {"id": "f", "kind": "slow", "delay_ms": 3, **fields},
        {"id": "g", "kind": "outage", "probability": 0.2},
    ]
    why, told = session(failures, together=6, answers=ANSWERS[:3])
    assert why == ""
    assert {"f", "g"} <= set(told)
