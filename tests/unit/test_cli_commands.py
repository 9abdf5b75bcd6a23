"""The commands without a stack: usage errors, validation output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.cli.app import app
from services.cli.commands.run import new_run_id
from services.cli.commands.sql import check_reading
from services.cli.errors import CliError

DEMO_SUITE = Path(__file__).resolve().parents[2] / "deploy" / "demo" / "suite"
SCENARIO = "scenario: {name: A, category: happy, simulation_context: A user asks.}\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_STORE", "WINDTUNNEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "suite", "--agent", "a"),
        ("gate", "wait", "r1"),
        ("baseline", "show", "x/y"),
        ("baseline", "accept", "r1", "--reason", "because"),
        ("agents", "list"),
        ("scenarios", "list"),
        ("topics", "create"),
        ("dead-letters", "list"),
        ("sql", "SELECT 1"),
    ],
)
def test_without_a_stack_one_line_says_what_to_do(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("windtunnel: no stack is running in .windtunnel: start one")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "suite"), "--agent"),
        (("run", "suite", "--agent", "a", "--trials", "0"), "--trials"),
        (("run", "suite", "--agent", "a", "--baseline", "x"), "expected accepted or none"),
        (("gate", "wait"), "Missing argument"),
        (("baseline", "accept", "r1"), "--reason"),
        (("up", "--broker", "rabbit"), "expected embedded, kafka or external"),
        (("up", "--broker", "external"), "belong together"),
        (("up", "--store", "sqlite"), "expected embedded, or clickhouse://"),
        (("up", "--replicas", "many"), "expected a number, or NAME=number"),
        (("up", "--replicas", "judges=2"), "expected one of dispatcher"),
        (("up", "--replicas", "judge=5"), "the number of partitions"),
        (("sql", "DROP TABLE runs"), "only reads"),
        (("scenarios", "validate", "missing.yaml"), "missing.yaml cannot be read"),
        (("scenarios", "publish", "nowhere"), "nowhere is not a folder"),
        (("agents", "register", "missing.json"), "missing.json cannot be read"),
        (("nonsense",), "No such command"),
    ],
)
def test_usage_errors_end_with_2_and_no_traceback(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_an_unreachable_broker_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_BUS_OPTIONS", "connect_timeout_ms=300")
    result = run("agents", "list", "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_demo_suite_is_valid_and_complete() -> None:
    result = run("scenarios", "validate", str(DEMO_SUITE), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["valid"] is True
    assert document["problems"] == []
    (suite,) = document["suites"]
    assert suite["suite"] == "order-support"
    assert suite["incomplete_categories"] == []


@pytest.mark.req("S06")
def test_validation_tells_every_problem_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("name: shop\nversion: 1\nowner: team\n")
    (tmp_path / "a.yaml").write_text(SCENARIO.replace("happy", "hapy"))
    (tmp_path / "b.yaml").write_text("scenario:\n  name: B\n  colour: red\x1b[31m\n")
    result = run("scenarios", "validate", str(tmp_path))
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert len(lines) >= 3
    assert any(line.startswith(f"{tmp_path}/a.yaml:1:") and "hapy" in line for line in lines)
    assert any(line.startswith(f"{tmp_path}/b.yaml") for line in lines)
    assert "\x1b" not in result.stdout
    as_json = run("scenarios", "validate", str(tmp_path), "--json")
    assert as_json.exit_code == 2
    problems = json.loads(as_json.stdout)["problems"]
    assert len(problems) == len(lines)
    assert all(problem["file"] and problem["message"] for problem in problems)


def test_one_file_is_checked_with_its_suites_defaults(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(
        "name: shop\nversion: '1'\nowner: team\ndefaults: {category: happy}\n"
    )
    path = tmp_path / "a.yaml"
    path.write_text("scenario: {name: A, simulation_context: A user asks.}\n")
    result = run("scenarios", "validate", str(path))
    assert result.exit_code == 0, result.output
    assert "1 scenario(s) are valid" in result.stdout


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1", "  select 1", "-- why\nSELECT 1", "/* a */ WITH x AS (SELECT 1) SELECT x",
        "SHOW TABLES", "DESCRIBE runs", "(SELECT 1)", "EXPLAIN SELECT 1",
    ],
)  # fmt: skip
def test_statements_that_read_are_let_through(query: str) -> None:
    check_reading(query)


@pytest.mark.parametrize(
    "query", ["", ";", "INSERT INTO runs VALUES (1)", "-- SELECT\nDROP TABLE x", "/* SELECT"]
)
def test_other_statements_are_refused(query: str) -> None:
    with pytest.raises(CliError, match="only reads"):
        check_reading(query)


def test_run_ids_say_which_suite_and_differ() -> None:
    first, second = new_run_id("./my suite/é"), new_run_id("./my suite/é")
    assert first != second
    assert first.startswith(".-my-suite-")
    assert first.isascii()
    assert " " not in first
