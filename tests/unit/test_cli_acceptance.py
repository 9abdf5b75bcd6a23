"""Which runs may become baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.gate import BaselineAccepted, DiffEntry, GateStatus
from schemas.scores import RunAggregates, ScenarioAggregate
from services.cli.acceptance import accepted
from services.cli.errors import CliError

FIGURES = RunAggregates(
    run_id="r2",
    suite="shop",
    suite_hash="abc",
    suite_version="1",
    agent_id="a-2",
    agent_name="agent",
    agent_fingerprint="f",
    planned=2,
    ended=2,
    scored=2,
    scenarios=(ScenarioAggregate(scenario_id="s", category="happy", planned=2, passed=2),),
)
DIFF = DiffEntry(
    scenario_id="s", category="happy", dimension="safety", kind="gate", change="improved"
)
VERDICT = GateStatus(run_id="r2", verdict="PASS", diff=(DIFF,), baseline_run_id="r1")
CURRENT = BaselineAccepted(
    name="shop/agent",
    run_id="r1",
    author="ann",
    reason="first",
    accepted_at_ms=1,
    aggregates=replace(FIGURES, run_id="r1"),
)


def accept(**changes: Any) -> BaselineAccepted:
    given: dict[str, Any] = {
        "run_id": "r2",
        "figures": FIGURES,
        "verdict": VERDICT,
        "current": CURRENT,
        "author": "bob",
        "reason": "better",
        "despite_fail": False,
        "now_ms": 7,
    }
    return accepted(**{**given, **changes})


@pytest.mark.req("V12")
def test_an_acceptance_records_who_why_and_what_changed() -> None:
    baseline = accept()
    assert baseline == BaselineAccepted(
        name="shop/agent",
        run_id="r2",
        author="bob",
        reason="better",
        accepted_at_ms=7,
        replaces_run_id="r1",
        diff=(DIFF,),
        aggregates=FIGURES,
    )


@pytest.mark.req("V12")
def test_the_first_baseline_replaces_nothing() -> None:
    verdict = GateStatus(run_id="r2", verdict="INCONCLUSIVE")
    baseline = accept(current=None, verdict=verdict)
    assert baseline.replaces_run_id is None
    assert baseline.diff == ()


@pytest.mark.req("V12")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"author": " "}, "author and a reason"),
        ({"reason": ""}, "author and a reason"),
        ({"figures": None}, "has no figures"),
        ({"verdict": None}, "has no verdict yet"),
        ({"figures": replace(FIGURES, ended=1)}, "is not whole"),
        ({"figures": replace(FIGURES, scored=1)}, "is not whole"),
        (
            {
                "figures": replace(
                    FIGURES, scenarios=(replace(FIGURES.scenarios[0], passed=1, lost=1),)
                )
            },
            "1 were lost",
        ),
        ({"figures": replace(FIGURES, partial=True)}, "left scenarios of the suite out"),
        ({"verdict": replace(VERDICT, verdict="FAIL")}, "--despite-fail"),
        ({"verdict": replace(VERDICT, baseline_run_id="r0")}, "compared with baseline r0"),
        ({"verdict": replace(VERDICT, baseline_run_id=None)}, "compared with baseline none"),
        ({"current": replace(CURRENT, run_id="r2")}, "is the baseline already"),
    ],
)
def test_what_would_launder_a_baseline_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CliError, match=message):
        accept(**changes)


@pytest.mark.req("V12")
def test_a_failed_run_is_accepted_only_explicitly() -> None:
    failed = replace(VERDICT, verdict="FAIL")
    assert accept(verdict=failed, despite_fail=True).run_id == "r2"
