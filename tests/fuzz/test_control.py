"""Strange bodies at the control API, and secrets where references belong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schemas.agent_document import AgentDocument
from schemas.codec import Codec
from schemas.registry import AgentRegistration
from services.control.errors import BY_CODE
from tests.support.control import MemoryTopic, Replica, agent_document

CANARY = "c4nary-S3CR3T-c4nary"
CODEC = Codec()
TAKEN: list[str] = []
QUIET = settings(
    derandomize=True, deadline=None, database=None, max_examples=1000,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from([*AgentDocument.model_fields, "tool_modes", "api_key", ""])
DOCUMENTS = st.dictionaries(FIELDS, JSON, max_size=6)
CODE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("entrypoint", "paste", "zip", "path", "git", "published"), JSON)
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "", "1"]), "input_schema": JSON},
        optional={"mode": JSON, "target": JSON, "output_schema": JSON, "target_auth_ref": JSON},
    ),
    max_size=3,
)
TEXT = st.text(max_size=20)
PLAIN = st.floats(-1e9, 1e9) | TEXT | st.lists(st.booleans() | st.integers(-(2**63), 2**64 - 1))
GOOD = st.fixed_dictionaries(
    {},
    optional={
        "build": st.dictionaries(TEXT, TEXT, max_size=3),
        "tools": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,9}", fullmatch=True),
                    "input_schema": st.fixed_dictionaries({}, optional={"x": PLAIN, "title": TEXT}),
                },
                optional={"description": st.text(), "mode": st.just("sandbox")},
            ),
            max_size=3,
        ),
        "actors": st.lists(st.sampled_from(["planner", "planner/search"]), max_size=2),
        "run_timeout_s": st.integers(1, 1800),
    },
)
BODIES = st.one_of(
    GOOD.map(lambda fields: json.dumps(agent_document("a") | fields).encode()),
    GOOD.map(lambda fields: json.dumps(fields).encode()),
    st.binary(max_size=200),
    DOCUMENTS.map(lambda fields: json.dumps(fields).encode()),
    st.tuples(DOCUMENTS, TOOLS, CODE).map(
        lambda parts: json.dumps(
            agent_document("a") | parts[0] | {"tools": parts[1], "kind": "code", "code": parts[2]}
        ).encode()
    ),
    st.tuples(DOCUMENTS, TOOLS).map(
        lambda parts: json.dumps(agent_document("a", tools=parts[1]) | parts[0]).encode()
    ),
    st.dictionaries(st.sampled_from(["x", "y"]), JSON).map(
        lambda modes: json.dumps({"tool_modes": modes}).encode()
    ),
)


def deep(depth: int) -> bytes:
    schema: Any = {}
    for _ in range(depth):
        schema = {"not": schema}
    tool = {"name": "a", "input_schema": schema}
    return json.dumps(agent_document("a", tools=[tool])).encode()


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[tuple[asyncio.Runner, Replica, MemoryTopic]]:
    topic = MemoryTopic()

    async def make() -> Replica:
        return Replica(topic)

    with asyncio.Runner() as runner:
        yield runner, runner.run(make()), topic
    assert min(TAKEN.count("POST"), TAKEN.count("PUT")) >= 20, "hardly anything was taken"


@pytest.mark.req("R18")
@QUIET
@given(body=BODIES, method=st.sampled_from(["POST", "PUT"]))
@example(body=deep(96), method="POST")
@example(body=deep(97), method="POST")
@example(body=b'{"tools": [' + b"[" * 97 + b"]" * 97 + b"]}", method="PUT")
@example(body=b'{"a": 1' + b"0" * 5000 + b"}", method="POST")
@example(body=b'{"agent_id": "a", "agent_id": "a"}', method="POST")
def test_whatever_is_sent_is_answered_by_the_table(
    fuzzed: tuple[asyncio.Runner, Replica, MemoryTopic], body: bytes, method: str
) -> None:
    runner, replica, topic = fuzzed
    replica.registry.forget()

    async def main() -> None:
        await replica.client.post("/api/agents", json=agent_document("known"))
        path = "/api/agents" if method == "POST" else "/api/agents/known"
        headers = {"Content-Type": "application/json"}
        answer = await replica.client.request(method, path, content=body, headers=headers)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert BY_CODE[error["code"]].status == answer.status_code < 500
            assert len(topic.records) == 1
            return
        TAKEN.append(method)
        # What was taken is a registration that reads and shows as the same again.
        agent = CODEC.decode(AgentRegistration, topic.records[-1].value)
        shown = await replica.client.get(f"/api/agents/{agent.agent_id}")
        assert shown.json() == answer.json()
        again = await replica.client.put(f"/api/agents/{agent.agent_id}", json=shown.json())
        assert (again.status_code, again.json()) == (200, shown.json())

    runner.run(main())


PLACES: list[dict[str, Any]] = [
    {"auth_value_ref": CANARY},
    {"auth_value_ref": f"Bearer {CANARY}"},
    {"auth_value_ref": [CANARY]},
    {"auth_value_ref": {CANARY: CANARY}},
    {"auth_value_ref": f"ENV:{CANARY}"},
    {"auth_value": CANARY},
    {"auth_header_value": CANARY},
    {"api_key": CANARY},
    {"headers": {"Authorization": CANARY}},
    {"auth_header": f"Bearer {CANARY}"},
    {"endpoint": f"https://user:{CANARY}@agent.example/"},
    {"endpoint": f"https://{CANARY}@agent.example/"},
    {"endpoint": f"https://user:{CANARY}@[agent.example/"},
    {"endpoint": f"https://agent.example/?api_key={CANARY}"},
    {"build": {"api_key": CANARY}},
    {"rasa": {"token_ref": CANARY}, "kind": "rasa"},
    {"rasa": {"token_ref": [CANARY]}, "kind": "rasa"},
    {"kind": "openai", "chat": {"model": "m", "parameters": {"api_key": CANARY}}},
    {"kind": "openai", "chat": {"model": "m", "parameters": {"x": [{"Authorization": CANARY}]}}},
    {"kind": "openai", "chat": {"model": "m", "api_key": CANARY}},
    {
        "tools": [
            {
                "name": "a", "input_schema": {}, "mode": "passthrough",
                "target": f"https://u:{CANARY}@t.example/", "target_auth_header": "X-Key",
                "target_auth_ref": CANARY,
            }
        ]
    },
    {"tool_modes": {"refund": {"mode": "passthrough", "target": "https://t.example/",
                               "target_auth_header": "X", "target_auth_ref": CANARY}}},
    {"tool_modes": {"refund": {"mode": "sandbox", "api_key": CANARY}}},
    {"kind": "code", "code": {"git": {"url": f"https://u:{CANARY}@git.example/x"}},
     "endpoint": None, "auth_header": None, "auth_value_ref": None},
]  # fmt: skip


@pytest.mark.req("R18")
@pytest.mark.parametrize("given", PLACES, ids=lambda given: next(iter(given)))
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_secret_in_place_of_a_reference_is_refused_and_shown_nowhere(
    given: dict[str, Any], method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        topic = MemoryTopic()
        replica = Replica(topic)
        if method == "POST":
            fields = {name: value for name, value in given.items() if value is not None}
            body = {**agent_document("a"), **fields}
            answer = await replica.client.post("/api/agents", json=body)
        else:
            await replica.client.post("/api/agents", json=agent_document("a"))
            answer = await replica.client.put("/api/agents/a", json=given)
        assert answer.json()["error"]["code"] == "document_invalid", answer.text
        said = capfd.readouterr()
        records = b"".join(record.value for record in topic.records).decode(errors="replace")
        metrics = replica.service.metrics.render().decode()
        for text in (answer.text, said.out, said.err, records, metrics):
            assert CANARY not in text

    asyncio.run(main())
