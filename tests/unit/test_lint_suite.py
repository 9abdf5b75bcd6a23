"""The linter on whole suites: the shipped ones are clean, and findings can be allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.lint.linting import lint, read_linted
from services.cli.registration import read_agent
from services.cli.suites import read_texts

ROOT = Path(__file__).parents[2]
SUITE = "name: shop\nversion: '1'\nowner: me\n"
VAGUE = "scenario:\n  name: x\n  user:\n    goals:\n      - {say: [a, b], done_when: ['\\S']}\n"
DISABLED = ("category-missing", "category-thin", "one-persona", "nothing-mined")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scenarios", *arguments])
    return result.exit_code, result.output


@pytest.mark.req("V01", "S06")
@pytest.mark.parametrize("name", ["demo", "example"])
@pytest.mark.parametrize("with_tools", [False, True])
def test_the_shipped_suites_are_clean(name: str, with_tools: bool) -> None:
    folder = ROOT / "deploy" / name
    document = {"demo": "agents/good.json", "example": "agent.json"}[name]
    tools = None
    if with_tools:
        schemas = {
            tool.name: json.loads(tool.input_schema)
            for tool in read_agent(folder / document).registration().tools
        }
        tools = {tool: frozenset(schema["properties"]) for tool, schema in schemas.items()}
    findings = lint(read_linted(*read_texts(folder / "suite"), tools))
    assert [str(f) for f in findings if f.rule != "tool-unused"] == []


@pytest.mark.req("S06")
def test_a_finding_says_where_what_and_how_to_mend_it() -> None:
    suite = read_linted(SUITE, {"deep/a.yaml": VAGUE})
    (finding,) = lint(suite, DISABLED)
    assert (finding.rule, finding.scenario) == ("pattern-vacuous", "a")
    assert str(finding) == (
        "deep/a.yaml:5:35: error pattern-vacuous: '\\\\S' is found in any answer. "
        "Ask for words that only the right answer has."
    )


@pytest.mark.req("S06")
def test_what_stands_in_the_defaults_is_told_once_and_there() -> None:
    suite = f"{SUITE}defaults:\n  budgets: {{turns: 12}}\n"
    fine = VAGUE.replace("\\S", "done")
    texts = {"a.yaml": fine, "b.yaml": fine.replace("[a, b]", "[c, d]")}
    found = lint(read_linted(suite, texts), DISABLED)
    assert [(f.rule, f.file, f.line, f.column) for f in found] == [
        ("budget-idle", "suite.yaml", 5, 20)
    ]


@pytest.mark.req("S06")
@pytest.mark.parametrize("where", ["a.yaml", "suite.yaml"])
def test_a_comment_with_a_reason_allows_a_finding(where: str) -> None:
    comment = "# lint: allow pattern-vacuous: any answer will do here\n"
    texts = {"a.yaml": VAGUE, "suite.yaml": SUITE}
    texts[where] = comment + texts[where]
    suite_text = texts.pop("suite.yaml")
    assert lint(read_linted(suite_text, texts), DISABLED) == []
    other = {**texts, "b.yaml": VAGUE.replace("[a, b]", "[c, d]")}
    elsewhere = lint(read_linted(suite_text, other), DISABLED)
    assert [f.file for f in elsewhere] == (["b.yaml"] if where == "a.yaml" else [])


@pytest.mark.req("S06")
@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# lint: allow pattern-vacuous:", ["pattern-vacuous"]),  # no reason, no allowance
        ("# lint: allow pattern-vacuous", ["pattern-vacuous"]),
        ("# lint: allow goal-echoed: why not", ["allow-idle", "pattern-vacuous"]),
        ("# lint: allow no-such-rule: why not", ["allow-idle", "pattern-vacuous"]),
        ("# lint: allow fact-unused: known with --agent", ["pattern-vacuous"]),
        ("# lint: allow passes-refusing: known with --run", ["pattern-vacuous"]),
    ],
)
def test_an_allowance_needs_a_reason_and_a_finding(comment: str, found: list[str]) -> None:
    texts = {"a.yaml": f"{comment}\n{VAGUE}"}
    assert [f.rule for f in lint(read_linted(SUITE, texts), DISABLED)] == found


@pytest.mark.req("S06", "V01")
def test_the_command_tells_findings_and_exits_accordingly(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "a.yaml").write_text(VAGUE)
    code, said = run("lint", str(tmp_path))
    assert code == 1
    assert f"{tmp_path}/a.yaml:5:35: error pattern-vacuous" in said
    assert "1 scenario(s): 6 errors, 1 warning, 1 note" in said
    disabled = [part for rule in (*DISABLED[:3], "pattern-vacuous") for part in ("--disable", rule)]
    code, said = run("lint", str(tmp_path), "--json", *disabled)
    assert code == 0  # a note is left
    assert [f["rule"] for f in json.loads(said)["findings"]] == ["nothing-mined"]
    code, said = run("lint", str(tmp_path), "--disable", "no-such")
    assert code == 2
    assert "expected one of category-missing" in said
    (tmp_path / "a.yaml").write_text("scenario: {name: 3}\n")
    code, said = run("lint", str(tmp_path))
    assert code == 2
    assert f"{tmp_path}/a.yaml:1:18: scenario.name" in said
    code, said = run("lint", str(tmp_path), "--run", "--dir", str(tmp_path / "none"))
    assert code == 2
