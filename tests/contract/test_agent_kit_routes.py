"""R17, R13, R26: an agent served by the kit, as the platform meets it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.testclient import TestClient

from schemas.agent_response import parse_response
from services.agent_kit import Envelope, current, proxy_call
from services.agent_kit import routes as kit_routes
from services.agent_kit.routes import register_dispatch_route
from services.tool_proxy.session import ProxyCore
from tests.support.http_server import serve
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import STATE, MemoryLog, make_world

SECRET = "canary-agent-secret"
TOKEN = "canary-run-token"
AUTH = {"Authorization": f"Bearer {SECRET}"}
BODY: dict[str, Any] = {
    "task_id": 42, "run_id": 17, "agent_id": 8,
    "input": {"task_id": 42, "user_instruction": "Order 1?", "input": {"order_id": "1"}},
    "odyssey_proxy_url": "http://127.0.0.1:1/runs/x", "run_token_jti": "j",
}  # fmt: skip
HEADERS = {**AUTH, "X-Pipelines-Run-Token": TOKEN}
APPS = [Starlette, FastAPI]


def client_for(handler: Any, kind: Any = Starlette, **options: Any) -> TestClient:
    app = kind()
    register_dispatch_route(app, handler, **{"token": SECRET, **options})
    return TestClient(app)


def answer_ok(_: Envelope) -> str:
    return "ok"


@pytest.mark.req("R17")
@pytest.mark.parametrize("kind", APPS)
def test_authentication_comes_first_then_the_ping(kind: Any) -> None:
    called = []
    client = client_for(called.append, kind)
    for headers in (
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": SECRET},
        {"Authorization": f"Bearer {SECRET}x"}, {"Authorization": "Bearer "},
        {"Authorization": "Bearer \u00e9".encode("latin-1").decode("latin-1")},
    ):  # fmt: skip
        given = [(name, value.encode("latin-1")) for name, value in headers.items()]
        for content in (b'{"ping": true}', json.dumps(BODY).encode(), b"no json"):
            refused = client.post("/dispatch", content=content, headers=given)
            assert refused.status_code == 401
            assert SECRET not in refused.text
    twice = client.post("/dispatch", json={"ping": True}, headers=[*AUTH.items(), *AUTH.items()])
    assert twice.status_code == 401
    ping = client.post("/dispatch", json={"ping": True}, headers=AUTH)
    assert (ping.status_code, ping.json()) == (200, {"ok": True})
    assert client.get("/dispatch", headers=AUTH).status_code == 405
    assert called == []


@pytest.mark.req("R17")
@pytest.mark.parametrize(
    "body", [{"ping": 1}, {"ping": "true"}, {"ping": False}, {"ping": True, "x": 1}, [], "x", None]
)
def test_only_the_exact_ping_is_one(body: Any) -> None:
    refused = client_for(answer_ok).post("/dispatch", json=body, headers=AUTH)
    assert refused.status_code == 400
    assert "error" in refused.json()


@pytest.mark.req("R17")
def test_it_does_not_start_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_TOKEN", raising=False)
    app = Starlette()
    for token in (None, "", "two words", "é"):
        with pytest.raises(ValueError, match="token") as refused:
            register_dispatch_route(app, answer_ok, token=token)
        assert "two words" not in str(refused.value)
    assert app.routes == []
    monkeypatch.setenv("AGENT_TOKEN", SECRET)
    register_dispatch_route(app, answer_ok)
    assert TestClient(app).post("/dispatch", json=BODY).status_code == 401
    assert TestClient(app).post("/dispatch", json=BODY, headers=HEADERS).status_code == 200


@pytest.mark.req("R17", "R18")
def test_other_headers_other_paths_and_no_authentication() -> None:
    client = client_for(answer_ok, path="/agent", auth_header="X-Api-Key")
    headers = {"X-Api-Key": SECRET, "X-Pipelines-Run-Token": TOKEN}
    assert client.post("/agent", json=BODY, headers=headers).status_code == 200
    assert client.post("/agent", json=BODY, headers=HEADERS).status_code == 401
    open_to_all = client_for(answer_ok, token=None, allow_anonymous=True)
    headers = {"X-Pipelines-Run-Token": TOKEN}
    assert open_to_all.post("/dispatch", json=BODY, headers=headers).status_code == 200


class Callable:
    async def __call__(self, envelope: Envelope) -> str:
        assert current() is envelope
        return envelope.user_instruction


def in_a_thread(envelope: Envelope) -> str:
    assert threading.current_thread() is not threading.main_thread()
    assert current() is envelope
    return envelope.user_instruction


async def on_the_loop(envelope: Envelope) -> str:
    assert current() is envelope
    return envelope.user_instruction


@pytest.mark.req("R13", "R26")
@pytest.mark.parametrize("kind", APPS)
@pytest.mark.parametrize("handler", [in_a_thread, on_the_loop, Callable()])
def test_handlers_of_every_kind(kind: Any, handler: Any) -> None:
    client = client_for(handler, kind)
    for _ in range(3):
        answer = client.post("/dispatch", json=BODY, headers=HEADERS)
        assert (answer.status_code, answer.json()) == (200, {"final_response": "Order 1?"})


@pytest.mark.req("R13", "R14")
def test_a_rich_answer_passes_unchanged() -> None:
    rich = {
        "final_response": "It was shipped.",
        "messages": [{"role": "assistant", "content": "It was shipped."}],
        "metadata": {"model": "m", "total_input_tokens": 5},
    }
    answer = client_for(lambda _: rich).post("/dispatch", json=BODY, headers=HEADERS)
    assert answer.json() == rich
    assert parse_response(answer.json(), require_rich_transcript=True).soft_warnings == ()


@pytest.mark.req("R13")
@pytest.mark.parametrize(
    "answer", ["", "  ", None, 5, [], {}, {"final_response": ""}, {"final_response": 1}]
)
def test_an_empty_answer_is_the_agents_error(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    refused = client_for(lambda _: answer).post("/dispatch", json=BODY, headers=HEADERS)
    assert refused.status_code == 500
    assert "final_response" in refused.text or "expected text" in refused.text
    assert "run 17" in caplog.text


@pytest.mark.req("R26")
@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (BODY, AUTH, "X-Pipelines-Run-Token"),
        ({**BODY, "odyssey_proxy_url": None}, HEADERS, "odyssey_proxy_url"),
        ({**BODY, "task_id": None}, HEADERS, "task_id"),
    ],
)
def test_an_incomplete_dispatch_names_the_field(body: Any, headers: Any, message: str) -> None:
    refused = client_for(answer_ok).post("/dispatch", json=body, headers=headers)
    assert refused.status_code == 400
    assert message in refused.json()["error"]


def test_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit_routes, "MAX_DISPATCH_BYTES", 1000)
    client = client_for(answer_ok)
    body = {**BODY, "more": "x" * 1000}
    assert client.post("/dispatch", json=body, headers=HEADERS).status_code == 413
    assert client.post("/dispatch", json=BODY, headers=HEADERS).status_code == 200


@pytest.mark.req("R22")
def test_no_secret_reaches_answers_or_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def fails(envelope: Envelope) -> str:
        raise RuntimeError(f"cannot work on {envelope!r}")

    app = Starlette()
    register_dispatch_route(app, fails, token=SECRET)
    with pytest.raises(RuntimeError) as failed:
        TestClient(app).post("/dispatch", json=BODY, headers=HEADERS)
    client = TestClient(app, raise_server_exceptions=False)
    answer = client.post("/dispatch", json=BODY, headers=HEADERS)
    assert answer.status_code == 500
    for text in (str(failed.value), answer.text, caplog.text):
        assert TOKEN not in text
        assert SECRET not in text


@pytest.fixture
def proxy() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        running.start("s1")
        running.start("s2")
        yield running


@pytest.mark.req("R11", "R12", "R20", "R26")
@pytest.mark.parametrize("kind", APPS)
def test_a_dispatch_from_end_to_end(proxy: Server, kind: Any) -> None:
    """Over sockets: the dispatch, the tool call that the agent makes, the answer."""

    def agent(envelope: Envelope) -> dict[str, Any]:
        order = proxy_call("get_order", dict(envelope.task_input))
        return {"final_response": f"{envelope.user_instruction} {order['status']}"}

    app = kind()
    register_dispatch_route(app, agent, token=SECRET)
    with serve(app) as url:
        for session_id in ("s1", "s2"):
            body = {**BODY, "odyssey_proxy_url": proxy.base(session_id)}
            headers = {**AUTH, "X-Pipelines-Run-Token": proxy.token(session_id)}
            answer = httpx.post(f"{url}/dispatch", json=body, headers=headers)
            assert answer.json() == {"final_response": f"Order 1? {STATE['orders']['1']['status']}"}
            assert len(proxy.recorded(session_id)) == 1
