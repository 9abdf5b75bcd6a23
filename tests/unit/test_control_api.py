"""The control API over an agents topic in memory: every operation, every refusal."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.agent_document import document_of
from schemas.registry import AgentRegistration, SourcePart
from schemas.topics import SOURCES
from services.control.errors import BY_CODE, TABLE, documentation
from services.runtime.agents.fingerprint import fingerprint
from tests.support.control import (
    OTHER_TOKEN,
    MemoryTopic,
    Replica,
    agent_document,
)

pytestmark = pytest.mark.req("R18")
ROOT = Path(__file__).parents[2]
CODE = "def run(task_input, *, proxy_url, run_token):\n    return {'final_response': 'hi'}\n"
SEEN: set[str] = set()
"""Codes that some test of this module has met; the last test compares them with the table."""

Play = Callable[[Replica, MemoryTopic], Awaitable[None]]


def play(scene: Play, **options: Any) -> None:
    async def main() -> None:
        topic = MemoryTopic()
        await scene(Replica(topic, **options), topic)

    asyncio.run(main())


def refused(answer: httpx.Response, code: str) -> dict[str, Any]:
    """The details of a refusal, which must be the table's row of this code."""
    row = BY_CODE[code]
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (row.status, row.code), answer.text
    assert (error["message"], error["retryable"]) == (row.message, row.retryable)
    SEEN.add(code)
    details: dict[str, Any] = error.get("details", {})
    return details


def problems(answer: httpx.Response) -> dict[str, str]:
    return {p["path"]: p["message"] for p in refused(answer, "document_invalid")["problems"]}


async def created(replica: Replica, agent_id: str = "a", **fields: Any) -> httpx.Response:
    answer = await replica.client.post("/api/agents", json=agent_document(agent_id, **fields))
    assert answer.status_code == 201, answer.text
    return answer


def test_an_agent_is_created_shown_changed_and_removed() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        client, agents = replica.client, replica.registry
        answer = await created(replica)
        assert answer.headers["Location"] == "/api/agents/a"
        agent = agents.get("a")
        assert isinstance(agent, AgentRegistration)
        assert agent.registered_at_ms == replica.service.clock.now_ms()
        etag = f'"{fingerprint(agent)}"'
        assert answer.headers["ETag"] == etag
        assert answer.headers["Cache-Control"] == "no-store"
        shown = await client.get("/api/agents/a")
        assert shown.json() == answer.json() == document_of(agent)
        assert shown.headers["ETag"] == etag
        told = (await client.get("/api/agents/a/fingerprint")).json()
        assert told == {
            "agent_id": "a",
            "fingerprint": fingerprint(agent),
            "registered_at": "2026-01-15T09:00:00.000+00:00",
        }
        changed = await client.put("/api/agents/a", json={"run_timeout_s": 60})
        assert changed.status_code == 200
        assert changed.json() == {**shown.json(), "run_timeout_s": 60}
        assert changed.headers["ETag"] != etag
        gone = await client.delete("/api/agents/a")
        assert (gone.status_code, gone.content) == (204, b"")
        assert topic.records[-1].is_tombstone
        refused(await client.get("/api/agents/a"), "agent_unknown")
        refused(await client.delete("/api/agents/a"), "agent_unknown")
        refused(await client.put("/api/agents/a", json={}), "agent_unknown")
        assert len(topic.records) == 3

    play(scene)


@pytest.mark.req("V08")
def test_what_is_shown_can_be_put_back_and_writes_nothing() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica, chat={"model": "m", "parameters": {"top_p": 1}}, kind="openai")
        shown = await replica.client.get("/api/agents/a")
        again = await replica.client.put("/api/agents/a", json=shown.json())
        assert (again.status_code, again.json()) == (200, shown.json())
        assert again.headers["ETag"] == shown.headers["ETag"]
        assert len(topic.records) == 1

    play(scene)


def test_ids_are_taken_once_and_the_refusal_tells_what_is_there() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        answer = await created(replica)
        again = await replica.client.post("/api/agents", json=agent_document("a"))
        assert refused(again, "agent_exists")["fingerprint"] == answer.headers["ETag"].strip('"')
        other = agent_document("b") | {"agent_id": "b"}
        put = await replica.client.put("/api/agents/a", json=other)
        assert problems(put) == {"agent_id": "expected 'a', whose change this is"}

    play(scene)


def test_a_write_can_be_bound_to_the_state_it_was_made_for() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        etag = (await created(replica)).headers["ETag"]

        async def put(name: str, **headers: str) -> httpx.Response:
            return await replica.client.put("/api/agents/a", json={"name": name}, headers=headers)

        assert (await put("one", **{"If-Match": f'"x", {etag}'})).status_code == 200
        details = refused(await put("two", **{"If-Match": etag}), "agent_changed")
        present = (await replica.client.get("/api/agents/a")).headers["ETag"]
        assert f'"{details["fingerprint"]}"' == present
        # A weak comparison would let a write through that only looks alike.
        refused(await put("two", **{"If-Match": f"W/{present}"}), "agent_changed")
        assert (await put("two", **{"If-Match": "*"})).status_code == 200
        delete = await replica.client.delete("/api/agents/a", headers={"If-Match": etag})
        refused(delete, "agent_changed")
        assert len(topic.records) == 3

    play(scene)


def test_single_tools_are_flipped_and_the_others_stay() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)

        async def flip(**modes: Any) -> httpx.Response:
            return await replica.client.put("/api/agents/a", json={"tool_modes": modes})

        target = {"target": "https://tools.example/refund", "target_timeout_s": 5}
        answer = await flip(refund={"mode": "passthrough", **target})
        assert answer.status_code == 200, answer.text
        get_order, refund = answer.json()["tools"]
        assert get_order["mode"] == "sandbox"
        assert (refund["mode"], refund["target"]) == ("passthrough", target["target"])
        kept = (await flip(refund={"mode": "passthrough", "target_timeout_s": 9})).json()
        assert kept["tools"][1] == {**refund, "target_timeout_s": 9}
        back = (await flip(refund={"mode": "sandbox"})).json()["tools"]
        assert "target" not in back[1]
        assert back == (await replica.client.get("/api/agents/a")).json()["tools"]

        assert problems(await flip(nothing={"mode": "sandbox"})) == {
            "tool_modes.nothing": "expected the name of one of the agent's tools"
        }
        assert problems(await flip(refund={"mode": "real"})) == {
            "tool_modes.refund.mode": "expected sandbox or passthrough"
        }
        untargeted = problems(await flip(refund={"mode": "passthrough"}))
        assert "expected the URL of the real tool" in untargeted["tool_modes.refund.target"]
        misspelt = problems(await flip(refund={"mode": "sandbox", "tarmac": "x"}))
        assert "unknown field" in misspelt["tool_modes.refund.tarmac"]
        put = await replica.client.put("/api/agents/a", json={"tool_modes": "sandbox"})
        assert "expected a mapping" in problems(put)["tool_modes"]

    play(scene)


def test_given_fields_replace_and_null_drops() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica, build={"image": "1"})
        changes = {"auth_header": None, "auth_value_ref": None, "tools": [], "build": None}
        answer = await replica.client.put("/api/agents/a", json=changes)
        assert answer.status_code == 200, answer.text
        assert answer.json()["tools"] == []
        assert answer.json()["build"] == {}
        assert "auth_header" not in answer.json()
        half = await replica.client.put("/api/agents/a", json={"auth_header": "X-Key"})
        assert "auth_value_ref" in problems(half)["auth_header"]

    play(scene)


@pytest.mark.req("R01")
def test_every_mistake_is_told_at_once_with_its_path() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        tools = [
            {"name": "1st", "input_schema": {"type": "object"}},
            {"name": "twice", "input_schema": {"type": "objekt"}},
            {"name": "twice", "input_schema": {}, "mode": "passthrough"},
            {"name": "bare"},
        ]
        document = agent_document("a", tools=tools, endpoint_url="https://x.example/")
        found = problems(await replica.client.post("/api/agents", json=document))
        assert set(found) == {
            "tools[0].name", "tools[1].input_schema", "tools[1].name", "tools[2].name",
            "tools[2].target", "tools[3].input_schema", "endpoint_url",
        }  # fmt: skip
        assert "did you mean 'endpoint'" in found["endpoint_url"]
        assert topic.records == []
        many = agent_document("a") | {f"field{n}": 1 for n in range(150)}
        answer = await replica.client.post("/api/agents", json=many)
        details = refused(answer, "document_invalid")
        assert (len(details["problems"]), details["left_off"]) == (100, 50)

    play(scene)


def test_agents_are_listed_in_pages() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        ids = [f"agent-{n:02}" for n in range(7)]
        for agent_id in reversed(ids):
            await created(replica, agent_id)
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 3}
        while True:
            page = (await replica.client.get("/api/agents", params=query)).json()
            assert len(page["agents"]) <= 3
            seen += [agent["agent_id"] for agent in page["agents"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert seen == ids
        first = page["agents"][0]
        shown = await replica.client.get(f"/api/agents/{first['agent_id']}/fingerprint")
        assert first["fingerprint"] == shown.json()["fingerprint"]
        assert (first["tools"], first["kind"]) == (2, "http")
        for wrong in (
            "limit=0", "limit=501", "limit=x", "limit=99999999999999999999", "limit=1&limit=2",
            "cursor=%00", "limit=%C2%B2", "limt=3", "=",
        ):  # fmt: skip
            refused(await replica.client.get(f"/api/agents?{wrong}"), "query_invalid")

    play(scene)


@pytest.mark.req("R17")
def test_the_connection_is_tested_and_failures_are_an_answer() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        answer = await replica.client.post("/api/agents/a/test-connection?timeout_s=3")
        assert answer.status_code == 200
        assert answer.json() == {
            "agent_id": "a", "kind": "http", "endpoint": "https://agent.example/dispatch",
            "ok": True, "reachable": True,
            "probes": [{"name": "ping", "status": 200, "latency_ms": 3, "verdict": "ok",
                        "detail": "answered 200", "hint": ""}],
        }  # fmt: skip
        await replica.client.post("/api/agents/a/test-connection")
        assert replica.tested == [("a", 3), ("a", 10)]
        for wrong in ("0", "31", "x", ""):
            url = f"/api/agents/a/test-connection?timeout_s={wrong}"
            refused(await replica.client.post(url), "query_invalid")
        refused(await replica.client.post("/api/agents/b/test-connection"), "agent_unknown")

    play(scene)


@pytest.mark.req("R20")
def test_source_is_published_before_the_registration_that_names_it() -> None:
    def zipped() -> str:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("main.py", CODE)
        return base64.b64encode(out.getvalue()).decode()

    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        base = {"agent_id": "a", "name": "coded", "kind": "code"}
        published: list[dict[str, Any]] = []
        for agent_id, code in (("a", {"paste": CODE}), ("b", {"zip": zipped()})):
            body = {**base, "agent_id": agent_id, "code": code}
            answer = await replica.client.post("/api/agents", json=body)
            assert answer.status_code == 201, answer.text
            assert set(answer.json()["code"]) == {"entrypoint", "published"}
            published.append(answer.json()["code"]["published"])
        # One hash: it is over the files, however they came.
        assert published[0]["source_hash"] == published[1]["source_hash"]
        assert [one.topic for one in replica.parts] == [SOURCES] * 2
        part: SourcePart = replica.parts[0].record
        assert part.source_hash == published[0]["source_hash"]

        shown = (await replica.client.get("/api/agents/a")).json()
        renamed = await replica.client.put("/api/agents/a", json={**shown, "name": "other"})
        assert renamed.status_code == 200
        assert len(replica.parts) == 2
        report = await replica.client.post("/api/agents/a/test-connection")
        assert (report.json()["ok"], replica.tested) == (True, [])

        stranger = {"published": {**published[0], "source_hash": "0" * 32}}
        put = await replica.client.put("/api/agents/a", json={"code": stranger})
        assert "upload it again" in problems(put)["code.published"]
        for code, path in (
            ({"path": "/etc"}, "code.path"),
            ({"paste": "x = 1"}, "code"),
            ({"zip": "no zip"}, "code"),
            ({"git": {"url": "http://127.0.0.1/x.git"}}, "code"),
            ({"paste": CODE, "zip": ""}, "code"),
        ):
            body = {**base, "agent_id": "c", "code": code}
            assert path in problems(await replica.client.post("/api/agents", json=body))

    play(scene)


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong-token-wrong-token", "Basic x", "é"])
def test_without_a_token_nothing_is_told(token: str) -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        headers = {"Authorization": token.encode()} if token else {}
        replica.client.headers.pop("Authorization")
        for method, path in (
            ("GET", "/api/agents"), ("POST", "/api/agents"), ("GET", "/api/agents/a"),
            ("PUT", "/api/agents/a"), ("DELETE", "/api/agents/a"),
            ("GET", "/api/agents/a/fingerprint"), ("POST", "/api/agents/a/test-connection"),
        ):  # fmt: skip
            answer = await replica.client.request(method, path, headers=headers)
            refused(answer, "token_invalid")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert replica.registry.readings == 0

    play(scene)


def test_any_of_several_tokens_opens_and_two_at_once_do_not() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        other = {"Authorization": f"bearer {OTHER_TOKEN}"}
        assert (await replica.client.get("/api/agents", headers=other)).status_code == 200
        twice = [("Authorization", f"Bearer {OTHER_TOKEN}")] * 2
        replica.client.headers.pop("Authorization")
        refused(await replica.client.get("/api/agents", headers=twice), "token_invalid")

    play(scene)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "line 1"),
        (b"[]", "expected an object"),
        (b"null", "expected an object"),
        (b'{"a": 1, "a": 2}', "the same key more than once"),
        (b'{"a": NaN}', "line 1"),
        (b'{"a": 18446744073709551616}', "64-bit"),
        (b'{"a": 1e999}', "line 1"),
        (b'{"a": "\xff"}', "utf-8"),
        (b'{"a": "\\ud800"}', "line 1"),
        (b'\xef\xbb\xbf{"a": 1}', "line 1"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "100 deep"),
        (b'{"a": ' + b"[" * 100_000, "line 1"),
        (b'{"a": 1}{"b": 2}', "line 1"),
    ],
)
def test_bodies_that_can_be_read_in_two_ways_are_refused(body: bytes, said: str) -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await replica.client.post("/api/agents", content=body, headers=headers)
        assert said in refused(answer, "body_invalid")["problem"]
        assert topic.records == []

    play(scene)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_other_media_types_are_refused(headers: dict[str, str]) -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        body = json.dumps(agent_document("a")).encode()
        answer = await replica.client.post("/api/agents", content=body, headers=headers)
        refused(answer, "media_type_unsupported")
        assert answer.headers["Connection"] == "close"

    play(scene)


def test_bodies_are_capped_while_they_arrive() -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 64 * 1024 * 1024:
            sent += 65_536
            yield b" " * 65_536

    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        headers = {"Content-Type": "application/json"}
        for _ in range(3):  # a place among the large bodies is given back each time
            answer = await replica.client.put("/api/agents/a", content=endless(), headers=headers)
            refused(answer, "body_too_large")
        declared = {**headers, "Content-Length": str(13 * 1024 * 1024)}
        refused(
            await replica.client.put("/api/agents/a", content=b"{}", headers=declared),
            "body_too_large",
        )
        large = agent_document("a", build={"notes": "x" * 1_000_000})
        answer = await replica.client.post("/api/agents", json=large)
        refused(answer, "registration_too_large")

    play(scene)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def never() -> Any:
        yield b"{"
        await asyncio.sleep(30)

    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await replica.client.post("/api/agents", content=never(), headers=headers)
        refused(answer, "body_timeout")

    play(scene, timeout_s=0.05)


def test_an_outage_is_told_and_leaves_nothing_half_done() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        topic.down = "read"
        for method, path, body in (
            ("GET", "/api/agents", None), ("GET", "/api/agents/a", None),
            ("PUT", "/api/agents/a", {"name": "b"}), ("DELETE", "/api/agents/a", None),
            ("POST", "/api/agents", agent_document("b")),
        ):  # fmt: skip
            refused(await replica.client.request(method, path, json=body), "log_unavailable")
        assert len(topic.records) == 1
        for state in ("append", "lost"):
            topic.down = state
            answer = await replica.client.put("/api/agents/a", json={"name": f"name-{state}"})
            refused(answer, "write_unconfirmed")
        topic.down = ""
        # What was not confirmed did take place, and is no secret to whoever asks.
        assert (await replica.client.get("/api/agents/a")).json()["name"] == "name-lost"

    play(scene)


def test_replicas_see_what_was_written_at_another_at_once() -> None:
    async def main() -> None:
        topic = MemoryTopic()
        one, two = Replica(topic), Replica(topic)
        for number in range(5):
            agent_id = f"agent-{number}"
            await created(one, agent_id)
            assert (await two.client.get(f"/api/agents/{agent_id}")).status_code == 200
            assert (await two.client.delete(f"/api/agents/{agent_id}")).status_code == 204
            refused(await one.client.get(f"/api/agents/{agent_id}"), "agent_unknown")

    asyncio.run(main())


def test_who_writes_over_what_it_has_not_seen_is_told() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        foreign = replica.registry.get("a")

        def other_was_first() -> None:
            topic.before_append = lambda: None
            topic.append("a", foreign)

        topic.before_append = other_was_first
        answer = await replica.client.put("/api/agents/a", json={"name": "mine"})
        refused(answer, "write_crossed")
        assert (await replica.client.get("/api/agents/a")).json()["name"] == "mine"

    play(scene)


def test_of_many_creations_at_once_one_takes_place() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        answers = await asyncio.gather(
            *(replica.client.post("/api/agents", json=agent_document("a")) for _ in range(20))
        )
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19
        assert len(topic.records) == 1
        replica.registry.readings = 0
        await asyncio.gather(*(replica.client.get("/api/agents/a") for _ in range(20)))
        assert replica.registry.readings <= 2  # readers share

    play(scene)


def test_a_change_made_meanwhile_keeps_what_this_one_leaves_alone() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        await asyncio.gather(
            replica.client.put("/api/agents/a", json={"run_timeout_s": 7}),
            replica.client.put("/api/agents/a", json={"name": "renamed"}),
            replica.client.put("/api/agents/a", json={"actors": ["planner"]}),
        )
        shown = (await replica.client.get("/api/agents/a")).json()
        assert (shown["run_timeout_s"], shown["name"]) == (7, "renamed")
        assert shown["actors"] == ["planner"]

    play(scene)


def test_no_more_agents_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.control.registry.REMEMBERED", 2)

    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica, "a")
        await created(replica, "b")
        full = await replica.client.post("/api/agents", json=agent_document("c"))
        refused(full, "agents_full")

    play(scene)


def test_too_many_requests_at_once_are_turned_away() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        answers = await asyncio.gather(*(replica.client.get("/api/agents") for _ in range(10)))
        turned_away = [answer for answer in answers if answer.status_code == 503]
        assert 0 < len(turned_away) < 10
        for answer in turned_away:
            refused(answer, "overloaded")
        assert (await replica.client.get("/api/agents")).status_code == 200

    play(scene, max_requests=2)


def test_paths_and_methods_that_are_not_there() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        for path in ("/", "/api", "/api/agents/", "/docs", "/redoc", "/api/agents/a/b", "/a%0Ab"):
            refused(await replica.client.get(path), "path_unknown")
        answer = await replica.client.patch("/api/agents/a", json={})
        refused(answer, "method_not_allowed")
        assert answer.headers["Allow"]

    play(scene)


def test_what_others_registered_and_is_no_document_is_told() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        agent = replica.registry.get("a")
        assert agent is not None
        broken = replace(agent.tools[0], input_schema="{")
        topic.append("a", replace(agent, tools=(broken,)))
        refused(await replica.client.get("/api/agents/a"), "registration_invalid")
        refused(await replica.client.put("/api/agents/a", json={}), "registration_invalid")
        assert (await replica.client.get("/api/agents")).status_code == 200
        assert (await replica.client.delete("/api/agents/a")).status_code == 204

    play(scene)


def test_a_bug_is_told_without_what_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: AgentRegistration) -> Any:
        raise RuntimeError("the-secret-of-the-request")

    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica)
        replica.test = fail
        answer = await replica.client.post("/api/agents/a/test-connection")
        refused(answer, "internal_error")
        assert "the-secret" not in answer.text

    play(scene)
    said = capsys.readouterr()
    assert "the-secret" not in said.err + said.out
    assert "RuntimeError" in said.err


@pytest.mark.req("D07")
def test_requests_are_counted_by_route_and_status_and_no_id() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        await created(replica, "the-agents-id")
        await replica.client.get("/api/agents/the-agents-id")
        await replica.client.get("/api/agents/another-id")
        await replica.client.get("/nowhere/the-agents-id")
        text = replica.service.metrics.render().decode()
        name = "windtunnel_control_requests_total"
        assert f'{name}{{route="POST /api/agents",status="201"}} 1.0' in text
        assert f'{name}{{route="GET /api/agents/{{agent_id}}",status="404"}} 1.0' in text
        assert f'{name}{{route="none",status="404"}} 1.0' in text
        assert "the-agents-id" not in text
        assert "another-id" not in text

    play(scene)


def test_the_openapi_document_describes_every_operation_and_loads_nothing() -> None:
    async def scene(replica: Replica, topic: MemoryTopic) -> None:
        replica.client.headers.pop("Authorization")
        document = (await replica.client.get("/openapi.json")).json()
        assert {
            (method.upper(), path) for path, item in document["paths"].items() for method in item
        } == {
            ("POST", "/api/agents"), ("GET", "/api/agents"), ("GET", "/api/agents/{agent_id}"),
            ("PUT", "/api/agents/{agent_id}"), ("DELETE", "/api/agents/{agent_id}"),
            ("GET", "/api/agents/{agent_id}/fingerprint"),
            ("POST", "/api/agents/{agent_id}/test-connection"),
        }  # fmt: skip
        text = json.dumps(document)
        for row in TABLE:
            if row.code not in ("path_unknown", "method_not_allowed"):
                assert f"`{row.code}`" in text, row.code
        assert document["security"] == [{"bearer": []}]
        references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
        assert references <= set(document["components"]["schemas"])

    play(scene)


def test_the_documented_errors_are_the_tables_and_all_of_them_occur() -> None:
    page = ROOT / "docs" / "control-api-errors.md"
    assert page.read_text() == documentation(), "run `python -m services.control.errors`"
    assert {row.code for row in TABLE} == SEEN
