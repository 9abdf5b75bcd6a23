"""Agents of every bad habit beside a good one: typed ends within their bounds, nobody disturbed."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from deploy.demo.register import demo_tools
from schemas.registry import AgentRegistration
from schemas.runs import RunRequest, RunStatus
from schemas.topics import AGENTS
from services.runtime.service import Publication
from tests.support.http_server import raw_server
from tests.support.running_stack import RunningStack, wait_until

pytestmark = pytest.mark.timeout(240)
SCENARIO = "happy-order-status"
TIMEOUT_S = 3
Habit = Callable[[socket.socket, dict[str, Any], dict[str, str]], None]


def respond(connection: socket.socket, body: Any, status: str = "200 OK") -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode() + raw)


def with_habit(habit: Habit) -> Callable[[socket.socket], None]:
    """An agent that answers the ping as it should, and turns as it likes."""

    def handle(connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        head, _, raw = received.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")[1:]
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        while len(raw) < int(headers["content-length"]):
            raw += connection.recv(65536)
        body = json.loads(raw)
        if body == {"ping": True}:
            respond(connection, {"ok": True})
        else:
            habit(connection, body, headers)

    return handle


def call(body: dict[str, Any], token: str, number: int = 0) -> httpx.Response:
    return httpx.post(
        f"{body['odyssey_proxy_url']}/tools/list_orders", json={"customer_id": f"c{number}"},
        headers={"Authorization": f"Bearer {token}"}, timeout=20,
    )  # fmt: skip


def silent(connection: socket.socket, *_: Any) -> None:
    time.sleep(TIMEOUT_S * 3)


def slow(connection: socket.socket, *_: Any) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    for _ in range(TIMEOUT_S * 3):
        connection.sendall(b" ")
        time.sleep(1)


def huge(connection: socket.socket, *_: Any) -> None:
    respond(connection, {"final_response": "x" * 10_000_000})


def large(connection: socket.socket, *_: Any) -> None:
    respond(connection, {"final_response": "x" * 3_000_000})


def not_json(connection: socket.socket, *_: Any) -> None:
    respond(connection, b"<html>oops</html>")


def empty(connection: socket.socket, *_: Any) -> None:
    respond(connection, {"final_response": ""})


def redirect(connection: socket.socket, *_: Any) -> None:
    connection.sendall(
        b"HTTP/1.1 307 X\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n"
    )


def cut(connection: socket.socket, *_: Any) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"final_resp')


def reset(connection: socket.socket, *_: Any) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def internal_error(connection: socket.socket, body: Any, headers: dict[str, str]) -> None:
    respond(connection, {"seen": headers}, "500 Internal Server Error")


def stranger(connection: socket.socket, body: dict[str, Any], _: Any) -> None:
    respond(connection, {"final_response": "Hello.", "task_id": body["task_id"] + 1})


def deep(connection: socket.socket, *_: Any) -> None:
    nested: Any = []
    for _ in range(500):
        nested = [nested]
    respond(connection, {"final_response": "Hello.", "messages": [{"role": "user", "x": nested}]})


def eager(connection: socket.socket, body: dict[str, Any], headers: dict[str, str]) -> None:
    with httpx.Client() as client:
        for number in range(1000):
            client.post(
                f"{body['odyssey_proxy_url']}/tools/list_orders",
                json={"customer_id": f"c{number}"},
                headers={"Authorization": f"Bearer {headers['x-pipelines-run-token']}"},
                timeout=20,
            )
    respond(connection, {"final_response": "Hello."})


class Late:
    """Uses an answered turn's token in the next one, and the last one's when all is over."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.body: dict[str, Any] = {}
        self.statuses: list[int] = []

    def __call__(self, connection: socket.socket, body: Any, headers: dict[str, str]) -> None:
        self.body = body
        if self.tokens:
            self.statuses.append(call(body, self.tokens[0], 1).status_code)
        self.tokens.append(headers["x-pipelines-run-token"])
        respond(connection, {"final_response": f"I have {headers['x-pipelines-run-token']}."})


HABITS: dict[str, tuple[Habit, str, str | None]] = {
    "silent": (silent, "agent_timeout", "timeout"),
    "slow": (slow, "agent_timeout", "timeout"),
    "huge": (huge, "agent_error", "response_too_large"),
    "large": (large, "", None),
    "not-json": (not_json, "agent_error", "response_not_json"),
    "empty": (empty, "agent_error", "final_response_missing"),
    "redirect": (redirect, "agent_error", "redirect"),
    "cut": (cut, "agent_error", "connection_broken"),
    "reset": (reset, "agent_error", "connection_broken"),
    "internal-error": (internal_error, "agent_error", "http_status"),
    "eager": (eager, "limit_tool_calls", None),
    "stranger": (stranger, "", None),
    "deep": (deep, "", None),
}


@pytest.mark.req("R13", "R16", "R22", "V07")
def test_bad_agents_end_their_own_sessions_and_nobody_elses(stack: RunningStack) -> None:
    pids = stack.pids("dispatcher"), stack.pids("tool_proxy")
    late = Late()
    habits = {name: one[0] for name, one in HABITS.items()} | {"late": late}
    with ExitStack() as servers:
        for name, habit in habits.items():
            url = servers.enter_context(raw_server(with_habit(habit)))
            agent = AgentRegistration(
                agent_id=f"bad-{name}", name="bad", endpoint=f"{url}/dispatch", tools=demo_tools(),
                run_timeout_s=60 if name == "eager" else TIMEOUT_S,
            )  # fmt: skip
            stack.publish(Publication(AGENTS, agent.agent_id, agent))
        runs = {f"bad-{name}": f"bad-{name}" for name in habits} | {"beside": "good"}
        for run_id, agent_id in runs.items():
            stack.request(
                RunRequest(
                    run_id=run_id, suite="order-support", agent_id=agent_id, baseline="none",
                    trials=1 if run_id != "beside" else 3, scenarios=(SCENARIO,),
                )
            )  # fmt: skip
        for run_id in runs:
            status = wait_until(lambda run_id=run_id: over_of(stack, run_id), 180, f"run {run_id}")
            assert (status.state, status.lost) in OVER, (run_id, status.errors)
        events = {run_id: stack.trajectories(run_id)[SCENARIO, 0] for run_id in runs}
        over = call(late.body, late.tokens[-1])

    assert (stack.pids("dispatcher"), stack.pids("tool_proxy")) == pids
    assert stack.verdict("beside").verdict == "PASS"
    for name, (_, reason, code) in HABITS.items():
        # The user may have gone on speaking while the session ended.
        (end,) = [event.session_ended for event in events[f"bad-{name}"] if event.session_ended]
        turns = [event.agent_turn for event in events[f"bad-{name}"] if event.agent_turn]
        if reason:
            assert (end.reason, turns[-1].error_code) == (reason, code), (name, end)
        if reason.startswith("agent_"):
            assert len(turns) == 1, name
            assert turns[0].latency_ms < (TIMEOUT_S + 7) * 1000, name
    assert "names task_id" in (first(events["bad-stranger"]).soft_warnings)[0]
    assert "deep" in first(events["bad-deep"]).soft_warnings[0]
    assert first(events["bad-deep"]).outcome == "ok"
    calls = [event.tool_called for event in events["bad-eager"] if event.tool_called]
    assert calls[-1].error_code == "tool_call_limit"
    assert len(calls) == calls[-1].call < 100

    # A call of an answered turn is recorded where and as what it was made; after the end, nothing.
    steps = [event.step for event in events["bad-late"]]
    calls_late = [event for event in events["bad-late"] if event.tool_called]
    assert late.statuses
    assert set(late.statuses) == {200}
    assert [event.turn for event in calls_late] == [1] * len(late.statuses)
    assert steps.index("a1") < steps.index("t1")
    assert over.status_code == 401
    stack_tokens = [token.encode() for token in late.tokens]
    assert all(b"gAAAAA" not in repr(event).encode() for event in events["bad-late"])
    assert "[redacted]" in first(events["bad-late"]).final_response
    assert not any(token.decode() in stack.logs() for token in stack_tokens)
    assert "gAAAAA" not in repr(events["bad-internal-error"])


OVER = (("sessions_done", 0), ("aggregated", 0))


def over_of(stack: RunningStack, run_id: str) -> RunStatus | None:
    """The run's status once it has no session left."""
    status = stack.status(run_id)
    return None if status is None or status.state in ("accepted", "running") else status


def first(events: Any) -> Any:
    return next(event.agent_turn for event in events if event.agent_turn)


def test_the_stack_is_still_ready(stack: RunningStack) -> None:
    def ready() -> bool:
        return all(
            httpx.get(f"{url}/readyz").status_code == 200 for url in stack.endpoints.values()
        )

    wait_until(ready, 90, "every service to be ready")
