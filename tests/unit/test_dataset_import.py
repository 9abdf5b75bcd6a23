"""Datasets in CSV as suites: every value as it was, every mistake at once, all or nothing."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from schemas.briefs import split
from schemas.errors import InvalidDocument, Problem
from schemas.loader import parse_scenario, scenario_of
from schemas.registry import AgentRegistration
from services.cli.app import app
from services.cli.dataset import (
    MAX_LEVELS,
    MAX_USER_CHARACTERS,
    SPELLINGS,
    Row,
    open_dataset,
)
from services.cli.dataset_suite import (
    Imported,
    SuiteOptions,
    columns_of,
    file_name,
    import_dataset,
    scenario_text,
)
from services.cli.suites import read_suite

pytestmark = pytest.mark.req("R23")

OPTIONS = SuiteOptions(name="shop", owner="team")


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(path: Path, delimiter: str = "") -> list[Row | Problem]:
    with open_dataset(path, delimiter) as dataset:
        return list(dataset.rows())


def imported(path: Path, out: Path, *, force: bool = False) -> Imported:
    with open_dataset(path) as dataset:
        return import_dataset(dataset, out, OPTIONS, force=force, progress=lambda *_: None)


def csv_text(table: Sequence[Sequence[str]], delimiter: str = ",", newline: str = "\r\n") -> str:
    out = io.StringIO()
    quoting: Any = csv.QUOTE_ALL
    csv.writer(out, delimiter=delimiter, lineterminator=newline, quoting=quoting).writerows(table)
    return out.getvalue()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
CELL = st.one_of(TEXT, st.sampled_from(["=1+1", "@SUM(A1)", "{x}", "no", "1e5", "~", "- a", "#"]))
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXT,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip
ROWS = st.lists(
    st.tuples(CELL.filter(str.strip), st.dictionaries(TEXT, JSON, max_size=4), CELL),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    delimiter=st.sampled_from(",;\t"),
    newline=st.sampled_from(["\r\n", "\n", "\r"]),
    bom=st.booleans(),
)
def test_every_value_survives_into_the_scenario_and_out_of_the_loader(
    rows: list[tuple[str, dict[str, Any], str]], delimiter: str, newline: str, bom: bool
) -> None:
    table = [["user", "state", "behavior"]]
    table += [[user, json.dumps(state), behavior] for user, state, behavior in rows]
    text = ("\ufeff" if bom else "") + csv_text(table, delimiter, newline)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "data.csv", text)
        done = imported(path, Path(folder) / "suite")
        assert done.scenarios == len(rows)
        suite = read_suite(Path(folder) / "suite")
    found = [scenario_of(entry) for entry in suite.scenarios]
    found.sort(key=lambda scenario: int(scenario.id.rpartition("-")[2]))
    assert [columns_of(scenario) for scenario in found] == [
        {"user": user, "state": state, "behavior": behavior} for user, state, behavior in rows
    ]
    # JSON tells 1 from 1.0 and true from 1, where == does not.
    assert [json.dumps(columns_of(one)["state"], sort_keys=True) for one in found] == [
        json.dumps(state, sort_keys=True) for _, state, _ in rows
    ]


def test_the_agent_is_given_the_state_and_the_user_says_the_instruction() -> None:
    row = Row(7, 8, "Refund {order} now", {"customer_id": "c1"}, "Be terse.")
    scenario = parse_scenario(scenario_text(row, "d.csv"), file_name(row))
    briefs = split(scenario, AgentRegistration(agent_id="a", name="a", endpoint=""), seed=1)
    assert briefs.task_input == {"customer_id": "c1"}
    assert briefs.user.persona.description == "Be terse."
    assert briefs.user.facts["user_instruction"].value == "Refund {order} now"
    # A brace in what is said would name a fact.
    assert briefs.user.conversations[0].goals[0].say == ("{user_instruction}",)
    assert scenario.id == "refund-order-now-00007"
    assert scenario.origin == "dataset d.csv, row 7"


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("user,state,behavior", ","),
        ("User Instruction;Initial-State;BEHAVIOR_INSTRUCTIONS", ";"),
        ("behavior\tstate\tuser_instruction", "\t"),
    ],
)
def test_spellings_and_delimiters_are_understood(
    tmp_path: Path, header: str, delimiter: str
) -> None:
    cells = {"u": "hi, there; you", "s": '{"a": "1,2;3"}', "b": "calm"}
    names = re.sub("[ -]", "_", header.lower()).split(delimiter)
    line = csv_text([[cells[SPELLINGS[name][0]] for name in names]], delimiter)
    (row,) = rows_of(written(tmp_path / "d.csv", f"{header}\r\n{line}"))
    assert isinstance(row, Row)
    assert row == Row(1, 2, "hi, there; you", {"a": "1,2;3"}, "calm")


def test_only_user_is_needed_and_other_columns_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", "id,user\n1,hello\n\n,\n2,bye\n")
    with open_dataset(path) as dataset:
        rows = list(dataset.rows())
        assert dataset.ignored == ("id",)
        assert dataset.empty_rows == 1
    assert [row.user_instruction for row in rows if isinstance(row, Row)] == ["hello", "bye"]
    assert rows[1] == Row(2, 5, "bye", {}, "")


def test_a_given_delimiter_is_used(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", "user|state\na,b;c|{}\n")
    assert rows_of(path, "|") == [Row(1, 2, "a,b;c", {}, "")]


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ('" ",{},', "user", "expected text, found none"),
        ("x" * (MAX_USER_CHARACTERS + 1) + ",,", "user", "at most 60000 characters"),
        ("a,[1],", "state", "expected a JSON object, found an array"),
        ("a,{,", "state", "line 1, column 2 of the cell"),
        ('a,"{""n"": NaN}",', "state", "has no NaN"),
        ('a,"{""n"": 1e999}",', "state", "finite"),
        ('a,"{""n"": 99999999999999999999}",', "state", "64 bits"),
        ('a,"{""n"": ' + "9" * 5000 + '}",', "state", ""),
        ('a,"{""k"": 1, ""k"": 2}",', "state", "'k' twice"),
        (r'a,"{""k"": ""\ud800""}",', "state", "half a character"),
        ('a,"' + '{""k"":' * 60 + "1" + "}" * 60 + '",', "state", "levels of nesting"),
        ('a,"' + '{""k"":' * 9000 + "1" + "}" * 9000 + '",', "state", "nesting"),
        ('a,"{""' + "k" * 2000 + '"": 1}",', "state", "at most 1000"),
        ("a,b", "", "expected 3 cells, as in the header, found 2"),
        ("a,{},c,d", "", "expected 3 cells, as in the header, found 4"),
        ('"a"b,{},', "", "goes on after its closing quote"),
        ('a,{},"b', "", "never closed"),
        (f'a,{{}},"{"b" * 140_000}"', "", "more than 131072 characters"),
    ],
)
def test_each_mistake_is_told_with_its_place(
    tmp_path: Path, line: str, column: str, message: str
) -> None:
    path = written(tmp_path / "d.csv", f"user,state,behavior\nfine,,\n{line}\n")
    with pytest.raises(InvalidDocument) as caught:
        imported(path, tmp_path / "suite")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.path) == (str(path), 3, column)
    assert message in problem.message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv"]


@pytest.mark.parametrize("more", [0, 1])
def test_the_state_may_be_nested_as_deep_as_a_scenario_file(tmp_path: Path, more: int) -> None:
    levels = MAX_LEVELS + more
    state = '{"k":' * levels + "1" + "}" * levels
    # The second row, which the loader does not see before the suite is read.
    text = csv_text([["user", "state"], ["a", ""], ["b", state]])
    path = written(tmp_path / "d.csv", text)
    if more:
        with pytest.raises(InvalidDocument, match=r"levels of nesting"):
            imported(path, tmp_path / "suite")
        return
    imported(path, tmp_path / "suite")
    assert len(read_suite(tmp_path / "suite").scenarios) == 2


def test_names_may_be_as_long_as_a_scenario_file_takes(tmp_path: Path) -> None:
    state = json.dumps({"k" * 998: 1, "\u2028" * 100: {"\x7f" * 160: 2}})
    path = written(tmp_path / "d.csv", csv_text([["user", "state"], ["a", ""], ["b", state]]))
    imported(path, tmp_path / "suite")
    assert len(read_suite(tmp_path / "suite").scenarios) == 2
    for name in ("k" * 999, "\u2028" * 300, "\x7f" * 200):
        written(path, csv_text([["user", "state"], ["a", ""], ["b", json.dumps({name: 1})]]))
        with pytest.raises(InvalidDocument, match=r"names of at most 1000"):
            imported(path, tmp_path / "other")


def test_every_bad_row_is_told_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    text = 'user,state\n,{}\n"a\nb",oops\nok,{}\n"x"y,{}\nz,[]\n'
    with pytest.raises(InvalidDocument) as caught:
        imported(written(tmp_path / "d.csv", text), tmp_path / "suite")
    assert [(p.line, p.path) for p in caught.value.problems] == [
        (2, "user"), (3, "state"), (6, ""), (7, "state"),
    ]  # fmt: skip
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"user\nhi\nca\xe9\n", "0xe9 at byte offset 10"),
        (b"\xef\xbb\xbfuser\n\xff\n", "0xff at byte offset 8"),
        ("user\nhi\n".encode("utf-16"), "looks like UTF-16"),
        (b"name,state\na,b\n", "expected a column user (or user_instruction), found 'name'"),
        (b"user,user_instruction\na,b\n", "expected the column once"),
        (b"", "expected a column user"),
        (b"user\n", "expected at least one row"),
        (b"user\n" + b"x" * (5 * 1024 * 1024), "lines of at most"),
    ],
)
def test_files_that_are_no_datasets(tmp_path: Path, data: bytes, message: str) -> None:
    path = written(tmp_path / "d.csv", data)
    with pytest.raises(InvalidDocument, match=r"expected") as caught:
        imported(path, tmp_path / "suite")
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_bad_byte_is_told_beside_the_bad_rows_before_it(tmp_path: Path) -> None:
    found = rows_of(written(tmp_path / "d.csv", b"user,state\na,x\nb,\n\xff,\nc,\n"))
    assert [isinstance(one, Problem) for one in found] == [True, False, True]
    assert isinstance(found[2], Problem)
    assert found[2].line == 4


class Doc:
    """The command line, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.csv = written(folder / "Orders 2.csv", "user,state\nWhere is it?,\nRefund me,\n")
        self.out = folder / "suite"

    def run(self, *arguments: str) -> Result:
        command = ["scenarios", "import-csv", str(self.csv), "--out", str(self.out), *arguments]
        return CliRunner().invoke(app, command)


@pytest.fixture
def cli(tmp_path: Path) -> Doc:
    return Doc(tmp_path)


def test_the_suite_is_named_after_the_file_and_validates(cli: Doc) -> None:
    result = cli.run("--owner", "me", "--world", "shop", "--category", "load")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote 2 scenarios to {cli.out}\n"
    suite = read_suite(cli.out)
    assert (suite.name, suite.owner, suite.version) == ("orders-2", "me", "1")
    scenario = scenario_of(suite.scenarios[0])
    assert scenario.category == "load"
    assert scenario.world is not None
    assert CliRunner().invoke(app, ["scenarios", "validate", str(cli.out)]).exit_code == 0


def test_existing_files_are_kept_without_force(cli: Doc) -> None:
    cli.out.mkdir()
    note = cli.out / "notes.txt"
    note.write_text("mine")
    result = cli.run()
    assert result.exit_code == 2
    assert "has files already" in result.stderr
    assert [path.name for path in cli.out.iterdir()] == ["notes.txt"]


def test_force_replaces_what_an_import_wrote_and_nothing_else(cli: Doc) -> None:
    assert cli.run().exit_code == 0
    own = cli.out / "more" / "own.yaml"
    own.parent.mkdir()
    own.write_text("scenario: {name: Mine, simulation_context: A user asks.}\n")
    suite_file = cli.out / "suite.yaml"
    suite_file.write_text(suite_file.read_text() + "description: edited\n")
    cli.csv.write_text("user\nSomething else\n")
    result = cli.run("--force")
    assert result.exit_code == 0, result.output
    assert "suite.yaml was there and is as it was" in result.stderr
    assert "edited" in suite_file.read_text()
    assert sorted(entry.scenario_id for entry in read_suite(cli.out).scenarios) == [
        "own", "something-else-00001",
    ]  # fmt: skip
    cli.csv.write_text("user,state\nBad,x\n")
    before = {path: path.read_bytes() for path in cli.out.rglob("*.yaml")}
    assert cli.run("--force").exit_code == 2
    assert {path: path.read_bytes() for path in cli.out.rglob("*.yaml")} == before
    assert sorted(path.name for path in cli.folder.iterdir()) == ["Orders 2.csv", "suite"]


def test_force_does_not_replace_a_file_that_somebody_wrote(cli: Doc) -> None:
    cli.out.mkdir()
    own = cli.out / "where-is-it-00001.yaml"
    own.write_text("scenario: {name: Mine}\n")
    result = cli.run("--force")
    assert result.exit_code == 2
    assert "was not made by an import" in result.stderr
    assert own.read_text() == "scenario: {name: Mine}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--category", "failure-injection"), "need what a dataset has no column for"),
        (("--delimiter", "ab"), "--delimiter: expected one character, or tab"),
        (("--name", "no spaces please"), "suite.yaml:1:7: name:"),
        (("--done-when", "("), "regular expression"),
    ],
)
def test_usage_errors(cli: Doc, arguments: tuple[str, ...], message: str) -> None:
    result = cli.run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not cli.out.exists()


def test_notes_say_what_a_user_must_know(cli: Doc) -> None:
    cli.csv.write_text("user;behavior;topic\nHi;Be angry;x\n;;\n")
    result = cli.run("--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["scenarios"] == 1
    told = " ".join(document["notes"])
    for words in ("'topic' (semicolon)", "1 rows without any text", "WINDTUNNEL_USER_MODEL"):
        assert words in told


_PEAK = """
import sys, tracemalloc
from pathlib import Path
from services.cli.dataset import Row, open_dataset
tracemalloc.start()
with open_dataset(Path(sys.argv[1])) as dataset:
    count = sum(isinstance(row, Row) for row in dataset.rows())
print(count, tracemalloc.get_traced_memory()[1])
"""


def test_an_import_holds_one_row_at_a_time(tmp_path: Path) -> None:
    """Reading ten times as many rows takes no more memory. In a process of its own, as what other
    threads of this one take would count."""

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("user,state\n")
            file.writelines(f'Ask {n},"{{""n"": {n}}}"\n' for n in range(rows))
        told = subprocess.run(
            [sys.executable, "-c", _PEAK, str(path)], check=True, capture_output=True, text=True
        )
        count, most = map(int, told.stdout.split())
        assert count == rows
        return most

    assert peak(100_000) < 2 * peak(10_000)
