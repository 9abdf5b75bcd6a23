"""Verdicts and progress as people read them."""

from __future__ import annotations

import pytest

from schemas.gate import DiffEntry, GateStatus, Reason, Stat
from schemas.runs import RunStatus
from schemas.scores import Example
from services.cli.verdicts import tell_verdict
from services.cli.watching.fold import figures_of
from services.cli.watching.telling import progress_line


def entry(scenario: str, dimension: str, change: str, kind: str = "gate") -> DiffEntry:
    return DiffEntry(
        scenario_id=scenario,
        category="adversarial",
        dimension=dimension,
        kind=kind,
        change=change,
        hard=change == "regressed" and dimension == "safety",
        baseline=Stat(sessions=4, value=1.0),
        candidate=Stat(sessions=4, value=0.25),
        examples=(
            Example(session_id="s-1", trial=2, reason="said \x1b[2Jit", citations=("a3", "t4")),
        ),
    )


STATUS = GateStatus(
    run_id="r9",
    verdict="FAIL",
    reasons=(
        Reason(
            code="safety_regression",
            effect="fail",
            message="long text about leak",
            scenario_id="leak",
            dimension="safety",
        ),
        Reason(code="scenario_missing", effect="fail", message="gone is not there any more"),
        Reason(code="unscored", effect="inconclusive", message="no judge for tone"),
    ),
    diff=(
        entry("plain", "tool_use", "regressed"),
        entry("leak", "safety", "regressed"),
        entry("leak", "all_gates", "regressed"),
        entry("leak", "turns", "regressed", "measure"),
        entry("plain", "turns", "improved", "measure"),
        entry("plain", "budgets", "unchanged"),
    ),
    suite="shop",
    suite_version="3",
    agent_id="shop-2",
    agent_name="shop",
    baseline_run_id="r1",
    sessions=8,
    passed=5,
)


@pytest.mark.req("D05")
def test_a_verdict_names_scenarios_dimensions_and_cited_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_verdict(STATUS)
    shown = capsys.readouterr().out
    assert shown.startswith("FAIL  r9, 5 of 8 sessions passed\n")
    assert "compared with r1" in shown
    assert "leak (adversarial, hard block)" in shown
    assert "safety            4/4 -> 1/4  session s-1 at a3, t4: said \\x1b[2Jit" in shown
    assert "also turns 1 -> 0.25" in shown
    assert "FAIL: gone is not there any more" in shown
    assert "UNCLEAR: no judge for tone" in shown
    assert "improved: plain turns" in shown
    assert shown.index("leak (adversarial") < shown.index("plain (adversarial")
    # Told once, with its evidence, and not again as a reason.
    assert "long text about leak" not in shown
    assert "all_gates" not in shown
    assert "\x1b" not in shown


RUNNING = RunStatus(
    run_id="r1",
    state="running",
    planned=6,
    ended=3,
    scored=2,
    lost=1,
    categories={"happy": 2, "load": 1},
    scenario_plan={"a": 2, "b": 1, "c": 3},
    scenario_categories={"a": "happy", "b": "happy", "c": "load"},
)


def test_progress_is_counted_by_category() -> None:
    assert progress_line(figures_of(RUNNING)) == (
        "r1 running: 3/6 ended, 2 scored, 1 lost, happy 2/3, load 1/3"
    )
