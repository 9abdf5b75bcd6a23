"""R22: run tokens over HTTP - useless for anything but their own session, and never recorded."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator
from typing import Any

import pytest

from services.runtime.agents.redaction import REDACTED
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy.app import BASE
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, check_refused, serving
from tests.support.tool_proxy import NOW_MS, SECRET, MemoryLog, ended, make_world

pytestmark = pytest.mark.req("R22")
TRACE = {"type": "custom", "payload": {"name": "n"}}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        for session_id in ("s1", "s2", "over"):
            running.start(session_id)
        running.log.put(ended("over"))
        yield running


def attempts(server: Server) -> Iterator[tuple[str, str, str]]:
    """Who tries what: a name, the path's run, the token."""
    good = server.token("s1")
    yield "of another session's URL", "jti-s2", good
    yield "of a URL that is no run", "%C3%A9", good
    yield "of an empty run", "%00", good
    yield "expired now", "jti-s1", server.token("s1", expires_at_ms=NOW_MS)
    yield "expired long ago", "jti-s1", server.token("s1", expires_at_ms=0)
    yield "of a session that is over", "jti-over", server.token("over")
    yield (
        "of another deployment",
        "jti-s1",
        Tokens("another deployment's secret").mint(
            Claims("s1", "run", "jti-s1", 1, 1, "d1", NOW_MS, NOW_MS + 60_000)
        ),
    )
    yield "with another session's end", "jti-s1", good[:-60] + server.token("s2")[-60:]
    claims = {"session_id": "s1", "exp": 2**40}
    for algorithm in ("none", "None", "HS256"):
        header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).decode()
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
        yield f"JWT, {algorithm}", "jti-s1", f"{header}.{body}."
        yield f"JWT, {algorithm}, signed with ours", "jti-s1", f"{header}.{body}.{good}"
    for cut in range(1, len(good), 7):
        yield f"cut at {cut}", "jti-s1", good[:cut]
        yield f"without the first {cut}", "jti-s1", good[cut:]
    for name, text in {
        "padded": good + "=",
        "unpadded": good.rstrip("="),
        "padded with more": good + "====",
        "doubled": good + good,
        "the other alphabet": good.replace("-", "+").replace("_", "/") + "/",
        "percent-encoded": good.replace("=", "%3D") + "%20",
        "with a space in it": f"{good[:9]} {good[9:]}",
        "with a tab in it": f"{good[:9]}\t{good[9:]}",
        "with a hard space": f"{good}\u00a0",
        "with a next-line": f"\u0085{good}",
        "in quotes": f'"{good}"',
        "upper case": good.upper(),
        "hex": good.encode().hex(),
        "of its bytes": base64.b64encode(good.encode()).decode(),
        "the secret": SECRET,
        "nothing": "",
        "the jti": "jti-s1",
        "ordinary": "fake-token",
        "long": "A" * 40_000,
        "null": "null",
    }.items():
        yield name, "jti-s1", text


def test_a_bad_token_is_401_and_nothing_is_recorded(server: Server) -> None:
    before = len(server.log.records)
    bodies: list[dict[str, Any]] = []
    for name, run, token in attempts(server):
        for header in ("Authorization", "X-Pipelines-Run-Token"):
            value = f"Bearer {token}" if header == "Authorization" else token
            for path, body in (("tools/get_order", {"order_id": "1"}), ("trace", TRACE)):
                url = f"{server.url}{BASE}/runs/{run}/{path}"
                given = {header: value.strip(" ").encode("latin-1")}
                response = server.client.post(url, json=body, headers=given)  # type: ignore[arg-type]
                assert response.status_code == 401, name
                check_refused(response, "token_invalid")
                assert response.headers["www-authenticate"] == "Bearer"
                bodies.append(response.json())
    assert all(body == bodies[0] for body in bodies)  # nobody is told how close they came
    assert len(server.log.records) == before
    assert server.call("get_order", {"order_id": "1"}, session_id="s2").status_code == 200


def test_a_session_that_is_over_is_refused_before_anything_else(server: Server) -> None:
    for content, headers in ((b"{", {}), (b"{}", {"X-Pipelines-Actor-Id": "//"})):
        response = server.call("get_order", session_id="over", content=content, headers=headers)
        check_refused(response, "token_invalid")


def test_no_byte_of_a_token_can_be_changed(server: Server) -> None:
    good = server.token("s1")
    url = f"{server.base()}/tools/get_order"
    letters = string.ascii_letters + string.digits + "-_="
    for at in range(len(good)):
        other = letters[(letters.index(good[at]) + 1 + at % 62) % len(letters)]
        changed = good[:at] + other + good[at + 1 :]
        response = server.client.post(
            url, json={"order_id": "1"}, headers={"X-Pipelines-Run-Token": changed}
        )
        check_refused(response, "token_invalid")
    assert server.recorded() == []
    assert server.call("get_order", {"order_id": "1"}).status_code == 200


def test_a_session_cannot_speak_for_another(server: Server) -> None:
    """A good token does its own session's work, whatever the body says."""
    server.call("get_order", {"order_id": "1", "session_id": "s2"})
    server.call("add_note", {"text": "mine"})
    assert server.recorded("s2") == []
    assert len(server.recorded("s1")) == 2


def test_a_run_token_is_never_recorded(server: Server) -> None:
    """Not as an argument, in a trace, as a tool or key: wherever an agent may leak it."""
    mine, older, another = server.token(), server.token(turn=9), server.token("s2")
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in mine)
    server.start("x", rules=[{"tool": "answer", "respond": {"ok": True}}])
    leaks = [
        json.dumps({"value": mine}),
        json.dumps({"value": [f"Bearer {older}, and {another}."], mine: 1}),
        f'{{"value": "{escaped}"}}',
        json.dumps({"value": {"deep": {another: {"x": f"a{mine}b"}}}}),
    ]
    for content in leaks:
        response = server.call("answer", content=content)
        assert "gAAAAA" not in response.text  # what it echoes is what was recorded
        event = json.dumps(
            {"type": "custom", "payload": {"name": "n", "data": json.loads(content)}}
        )
        trace = server.client.post(
            f"{server.base()}/trace", content=event, headers=server.headers()
        )
        assert trace.status_code == 202
    check_refused(server.call(mine), "tool_unknown")
    shortest = server.token("", run_id="", jti="", dispatch_id="", turn=0, conversation=0)
    response = server.call("answer", {"value": 1}, headers={"Idempotency-Key": shortest})
    check_refused(response, "idempotency_key_invalid")  # none is short enough for a key
    recorded = server.recorded()
    assert len(recorded) == 9
    for event in recorded:
        text = repr(event)
        for token in (mine, older, another):
            assert token not in text
    called = recorded[0].tool_called
    assert called is not None
    assert json.loads(called.arguments) == {"value": REDACTED}


def test_what_only_looks_like_a_token_is_left_alone(server: Server) -> None:
    foreign = Tokens("another deployment's secret").mint(
        Claims("s1", "run", "jti-s1", 1, 1, "d1", NOW_MS, NOW_MS + 60_000)
    )
    content = json.dumps({"value": foreign}, indent=2)
    assert server.call("answer", content=content).json()["response"] == foreign
    called = server.recorded()[0].tool_called
    assert called is not None
    assert called.arguments == content
