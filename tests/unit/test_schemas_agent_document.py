"""Registrations: every mistake at once, none of them quoting a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.demo.agents import generate
from schemas.agent_document import document_of
from schemas.agent_loader import parse_agent
from schemas.errors import InvalidDocument
from schemas.registry import CodeSource
from services.cli.errors import CliError
from services.cli.registration import read_agent

GOOD = """
agent_id: support-1
name: support
endpoint: https://agent.example/dispatch
auth_header: Authorization
auth_value_ref: env:AGENT_AUTH
tools:
  - name: get_order
    description: Look up an order.
    input_schema: {type: object, properties: {order_id: {type: string}}}
  - name: refund
    input_schema: {type: object}
    output_schema: {type: object}
    mode: passthrough
    target: https://tools.example/refund
actors: [planner/search]
build: {image: "1.2"}
"""


def problems(text: str, file: str = "agent.yaml") -> list[str]:
    with pytest.raises(InvalidDocument) as caught:
        parse_agent(text, file).registration()
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.req("R01", "R18")
def test_a_good_document_becomes_a_registration() -> None:
    agent = parse_agent(GOOD, "agent.yaml").registration()
    assert agent.agent_id == "support-1"
    assert agent.auth_value_ref == "env:AGENT_AUTH"
    assert [tool.name for tool in agent.tools] == ["get_order", "refund"]
    assert json.loads(agent.tools[0].input_schema)["type"] == "object"
    assert agent.tools[1].mode == "passthrough"
    assert agent.run_timeout_s == 300


@pytest.mark.req("R01", "R18")
def test_every_mistake_is_found_at_once_with_its_place() -> None:
    found = problems(
        """\
agent_id: "bad id"
endpoint: agent.example
auth_header: "X Key"
tools:
  - name: 1st
    input_schema: {type: object}
  - name: twice
    input_schema: {type: objekt}
  - name: twice
    mode: passthrough
    input_schema: {type: object}
  - name: no_schema
    target: https://x.example/
actors: ["/broken"]
run_timeout_s: 1801
colour: red
"""
    )
    text = "\n".join(found)
    for expected in (
        "agent.yaml:1:11: agent_id",
        "name: expected the field 'name', which is missing",
        "agent.yaml:2:11: endpoint: expected a URL",
        "agent.yaml:3:14: auth_header: expected the name of an HTTP header",
        "auth_header: expected auth_header and auth_value_ref, or neither",
        "tools[0].name: expected text like",
        "tools[1].input_schema: expected a valid JSON Schema",
        "agent.yaml:7:11: tools[1].name: expected a name of its own, found 'twice' 2 times",
        "agent.yaml:9:11: tools[2].name: expected a name of its own",
        "tools[2].target: expected the URL of the real tool",
        "tools[3].input_schema: expected the field 'input_schema', which is missing",
        "tools[3].target: expected no target",
        "actors: expected call paths",
        "run_timeout_s: ",
        "unknown field 'colour'",
    ):
        assert expected in text, f"{expected} not in\n{text}"
    assert len(found) == 15


@pytest.mark.req("R18", "R20", "S07")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["kind: code"], "code: expected one of paste, zip, path, git, published"),
        (["kind: code", "code: {paste: x, path: y}"], "found paste, path"),
        (["kind: code", "code: {paste: x, entrypoint: run}"], "code.entrypoint"),
        (["kind: openai", "endpoint: http://m.example/v1"], "chat: expected the model"),
        (["kind: rasa"], "endpoint: expected a URL, as kind is rasa"),
        (["kind: http"], "endpoint: expected a URL, as kind is http"),
        (
            ["endpoint: http://a.example", "chat: {model: m}"],
            "chat: expected only with kind: openai",
        ),
        (
            ["kind: openai", "endpoint: http://m.example", "chat: {model: m, parameters: {n: 2}}"],
            "chat.parameters: expected parameters such as temperature, found n",
        ),
        (
            ["endpoint: http://a.example", "auth_header: X", "auth_value_ref: env:WINDTUNNEL_X"],
            "auth_value_ref: expected a variable of your own",
        ),
        (
            ["endpoint: http://a.example", "auth_header: X-Pipelines-Run-Token"],
            "auth_header: expected a header of your own",
        ),
        (["endpoint: http://a.example", "auth_header: Content-Length"], "is part of the contract"),
    ],
)
def test_each_kind_has_what_it_needs_and_nothing_else(lines: list[str], expected: str) -> None:
    assert expected in "\n".join(problems("\n".join(["agent_id: a", "name: a", *lines])))


@pytest.mark.req("R18", "R20", "S07")
@pytest.mark.parametrize(
    ("kind", "block"),
    [("openai", "chat: {model: m, parameters: {top_p: 0.5}}"), ("rasa", "rasa: {}")],
)
def test_each_kind_is_read_and_shown_as_it_was_written(kind: str, block: str) -> None:
    text = f"agent_id: a\nname: a\nkind: {kind}\nendpoint: http://m.example\n{block}\n"
    agent = parse_agent(text, "agent.yaml").registration()
    shown = parse_agent(json.dumps(document_of(agent)), "agent.json").registration()
    assert shown == agent
    assert agent.kind == kind


@pytest.mark.req("R20")
def test_a_code_agent_is_registered_with_what_its_source_became() -> None:
    text = "agent_id: a\nname: a\nkind: code\ncode: {paste: 'def run(): ...'}\n"
    document = parse_agent(text, "agent.yaml")
    with pytest.raises(ValueError, match="published before"):
        document.registration()
    agent = document.registration(CodeSource(source_hash="0" * 32, origin="paste", files=1))
    shown = parse_agent(json.dumps(document_of(agent)), "agent.json").registration()
    assert shown == agent


@pytest.mark.req("R18")
@pytest.mark.parametrize(
    "line",
    [
        "auth_value_ref: Bearer s3cr3t-value",
        "auth_value: s3cr3t-value",
        "auth_value_ref: [s3cr3t-value]",
        "endpoint: https://user:s3cr3t-value@agent.example/",
        "endpoint: 'https://user:s3cr3t-value@[bad/'",
    ],
)
def test_what_may_be_a_secret_is_refused_and_never_shown(line: str) -> None:
    name = line.partition(":")[0]
    kept = [row for row in GOOD.splitlines() if not row.startswith(f"{name}:")]
    text = "\n".join(problems("\n".join([*kept, line])))
    assert name in text
    assert "s3cr3t" not in text


def test_json_is_read_too_and_its_syntax_errors_have_a_place() -> None:
    document = document_of(parse_agent(GOOD, "agent.yaml").registration())
    assert document_of(parse_agent(json.dumps(document), "agent.json").registration()) == document
    assert problems('{"agent_id": }', "agent.json") == [
        "agent.json:1:14: (top): not JSON: Expecting value"
    ]
    assert "stands twice" in problems('{"a": 1, "a": 2}', "agent.json")[0]
    assert "expected an object" in problems("[]", "agent.json")[0]


@pytest.mark.parametrize("text", ["- a", "tools: nothing", "tools: [1, {name: {}}]", "a: [", ""])
def test_strange_documents_are_problems_and_not_crashes(text: str) -> None:
    assert problems(text)


def test_unreadable_files_are_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be read: No such file"):
        read_agent(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CliError, match="not UTF-8"):
        read_agent(tmp_path / "binary.yaml")


def test_the_demo_agents_files_are_what_their_world_says() -> None:
    for path, text in generate.files().items():
        message = f"{path.name} is out of date: run `python -m deploy.demo.agents.generate`"
        assert path.read_text() == text, message
        assert document_of(read_agent(path).registration()) == json.loads(text)
