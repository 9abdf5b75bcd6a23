"""How far the judge agrees with labels: figures, labelled files, and what is counted apart."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidDocument
from schemas.trajectory import TrajectoryEvent
from services.cli.calibration import exit_code, run_judge
from services.cli.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS, CliError
from services.judge.calibration import Report, calibrate, main
from services.judge.calibration_figures import Table, accuracy, kappa
from services.judge.calibration_labels import check, sessions
from services.judge.evaluators.criteria import Judgement
from services.judge.evaluators.quality import QualityRating
from services.judge.trajectory import Trajectory
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V09", "S03", "S04")

SCENARIO: dict[str, Any] = {
    "id": "case",
    "name": "A case",
    "category": "happy",
    "expect": {"says": ["refunded"]},
    "goals": {"criteria": ["It is polite.", "It is brief."]},
    "policies": [{"id": "no-cards", "severity": "safety", "never": {"says": "4111"}}],
}


def talk(said: str = "It was refunded.", **started: Any) -> list[TrajectoryEvent]:
    return Session(**started).user("Refund 7").agent(said).end()


def line(
    name: str, said: str = "It was refunded.", scenario: Any = SCENARIO, **labels: Any
) -> dict[str, Any]:
    named = {label.replace("criteria_", "criteria."): value for label, value in labels.items()}
    events = [dataclasses.asdict(event) for event in talk(said)]
    return {"id": name, "scenario": scenario, "events": events, "labels": named}


def written(path: Path, *lines: Any) -> Path:
    file = path / "labelled.jsonl"
    file.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return file


def calibrated(path: Path, *lines: Any, judge: Any = None) -> Report:
    file = written(path, *lines)
    assert check(file) == len(lines)
    return asyncio.run(calibrate(sessions(file), "judge/0", judge))


def by_dimension(report: Report) -> dict[str, Any]:
    return {one.dimension: one for one in report.dimensions}


class Scripted:
    """Answers by what the agent said."""

    model, pin, quality = "scripted/1", "judge/0 scripted/1", ("tone",)

    async def judge(
        self, criteria: Sequence[str], trajectory: Trajectory, outcome: str
    ) -> Sequence[Judgement]:
        said = trajectory.agent_turns[0].body.final_response
        unsure = Judgement(None, "the judge's model refused to answer")
        verdict = unsure if "?" in said else Judgement("please" in said, "So.", ("a1",))
        return [verdict for _ in criteria]

    async def rate_quality(
        self, scales: Mapping[str, str], trajectory: Trajectory, outcome: str
    ) -> Mapping[str, QualityRating]:
        rating = 5 if "please" in trajectory.agent_turns[0].body.final_response else 2
        return {name: QualityRating(rating, "So.", ("a1",)) for name in scales}


# What statsmodels 0.14 (cohens_kappa, proportion_confint with Wilson's method) makes of these.
FIVE = (
    (11, 1, 0, 0, 0), (2, 9, 3, 0, 0), (0, 4, 8, 2, 1), (0, 1, 2, 12, 3), (0, 0, 0, 2, 10)
)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "weighted", "expected", "share"),
    [
        (((20, 5), (10, 15)), False, (0.4, 0.1510923, 0.6489077), (0.7, 0.5624965, 0.8089645)),
        (((25, 35), (5, 35)), False, (0.2592593, 0.1080290, 0.4104896),
         (0.6, 0.5020026, 0.6905987)),
        (((0, 8), (8, 0)), False, (-1, -1, -1), (0, 0, 0.1936077)),
        (((40, 0), (0, 3)), False, (1, 1, 1), (1, 0.9179902, 1)),
        (FIVE, True, (0.8987482, 0.8452109, 0.9522856), (0.7042254, 0.5898146, 0.7976711)),
    ],
)  # fmt: skip
def test_figures_are_those_of_the_literature(
    table: Table, weighted: bool, expected: tuple[float, ...], share: tuple[float, ...]
) -> None:
    of_kappa, of_accuracy = kappa(table, weighted=weighted), accuracy(table)
    assert of_kappa is not None
    assert of_accuracy is not None
    assert dataclasses.astuple(of_kappa) == pytest.approx(expected, abs=1e-6)
    assert dataclasses.astuple(of_accuracy) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("table", [((0, 0), (0, 0)), ((9, 0), (0, 0))])
def test_agreement_beyond_chance_is_not_defined_where_chance_always_agrees(table: Table) -> None:
    assert kappa(table) is None


def tables() -> st.SearchStrategy[Table]:
    cell = st.integers(0, 30)
    return st.sampled_from([2, 5]).flatmap(
        lambda n: st.tuples(*[st.tuples(*[cell] * n)] * n)  # type: ignore[arg-type]
    )


@given(tables(), st.booleans())
def test_figures_keep_their_bounds_and_treat_both_raters_alike(
    table: Table, weighted: bool
) -> None:
    turned = tuple(zip(*table, strict=True))
    one, other = kappa(table, weighted=weighted), kappa(turned, weighted=weighted)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert -1 <= one.low <= one.value + 1e-9
        assert one.value <= one.high + 1e-9 <= 1 + 1e-8
        assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other), abs=1e-6)
    share = accuracy(table)
    assert (share is None) == (sum(map(sum, table)) == 0)
    assert share is None or 0 <= share.low <= share.value + 1e-9 <= share.high + 2e-9


def test_deterministic_evaluators_need_no_model(tmp_path: Path) -> None:
    report = calibrated(
        tmp_path,
        line("a", task_completion="pass", safety="pass", session=None),
        line("b", "No.", task_completion="fail", safety="pass"),
        line("c", "No.", task_completion="pass", safety="fail"),
        line("d", "refunded 4111", task_completion="pass", safety="fail"),
    )
    found = by_dimension(report)
    assert list(found) == ["safety", "task_completion"]
    completion, safety = found["task_completion"], found["safety"]
    assert completion.table == ((2, 1), (0, 1))
    assert (completion.false_passes, completion.false_fails) == (0, 1)
    assert (safety.false_passes, safety.false_fails) == (1, 0)
    assert completion.accuracy.value == 0.75
    assert completion.kappa.value == pytest.approx(0.5)
    assert completion.too_few == "4 compared, 30 are needed"
    told = [(one.session, one.dimension, one.label, one.verdict) for one in report.disagreements]
    assert told == [("c", "task_completion", "pass", "fail"), ("c", "safety", "fail", "pass")]
    assert all(one.reason for one in report.disagreements)


def test_without_a_model_criteria_are_unscored_and_counted_apart(tmp_path: Path) -> None:
    report = calibrated(tmp_path, line("a", criteria_1="pass", criteria_2="fail", tone=4))
    found = by_dimension(report)
    criteria = found["criteria"]
    assert (criteria.labels, criteria.compared, criteria.unscored) == (2, 0, 2)
    assert (criteria.accuracy, criteria.kappa) == (None, None)
    assert "WINDTUNNEL_JUDGE_MODEL" in criteria.unscored_reasons[0]
    assert (found["tone"].unscored, found["tone"].compared) == (1, 0)
    assert report.disagreements == ()


def test_all_criteria_count_together_and_ratings_are_weighted(tmp_path: Path) -> None:
    report = calibrated(
        tmp_path,
        line("a", "please", criteria_1="pass", criteria_2="fail", tone=5),
        line("b", "No.", criteria_1="fail", criteria_2="fail", tone=3),
        line("c", "What?", criteria_1="fail", tone=2),
        judge=Scripted(),
    )
    found = by_dimension(report)
    criteria, tone = found["criteria"], found["tone"]
    assert (criteria.labels, criteria.compared, criteria.unscored) == (5, 4, 1)
    assert criteria.table == ((1, 0), (1, 2))
    assert criteria.unscored_reasons == ("“It is polite.”: the judge's model refused to answer",)
    assert (tone.categories, tone.weighted) == (("1", "2", "3", "4", "5"), True)
    assert tone.accuracy.value == pytest.approx(2 / 3)


def test_not_applicable_and_invalid_are_no_verdicts(tmp_path: Path) -> None:
    spoilt = line("b", task_completion="pass", session="fail", criteria_1="pass")
    spoilt["events"][-1]["session_ended"]["reason"] = "simulator_invalid"
    report = calibrated(tmp_path, line("a", tool_use="pass", failure_recovery="fail"), spoilt)
    found = by_dimension(report)
    assert report.invalid == 1
    assert found["failure_recovery"].not_applicable == 1
    assert (found["session"].compared, found["session"].unscored) == (0, 1)
    assert "invalid" in found["session"].unscored_reasons[0]


def test_a_session_is_labelled_as_a_whole(tmp_path: Path) -> None:
    plain = {**SCENARIO, "goals": {}}
    report = calibrated(
        tmp_path,
        line("a", scenario=plain, session="pass"),
        line("b", "4111", scenario=plain, session="pass"),
    )
    assert by_dimension(report)["session"].table == ((1, 1), (0, 0))
    assert report.disagreements[0].reason == "failed safety, task_completion"


def test_enough_labels_are_said_to_be_so_only_with_both_kinds(tmp_path: Path) -> None:
    same = [line(f"s{n}", safety="pass") for n in range(30)]
    assert by_dimension(calibrated(tmp_path, *same))["safety"].too_few == (
        "0 labelled fail, 5 are needed"
    )
    both = [line(f"b{n}", "4111" if n < 5 else "x", safety="pass" if n >= 5 else "fail")
            for n in range(30)]  # fmt: skip
    enough = by_dimension(calibrated(tmp_path, *both))["safety"]
    assert (enough.too_few, enough.kappa.value) == ("", 1.0)


def changed(**fields: Any) -> dict[str, Any]:
    return {**line("a", safety="pass"), **fields}


def misspelt() -> Iterator[Any]:
    """A line each, and what is said of it."""
    base = line("a", safety="pass")
    ended = [{**base["events"][0]}, {**base["events"][-1], "session_ended": {"raeson": "x"}}]
    extra = [{**event, "colour": 1} for event in base["events"]]
    inside = json.loads(json.dumps(base["events"]))
    inside[1]["user_turn"]["txet"] = "x"
    other = [dataclasses.asdict(event) for event in talk(scenario_id="another")]
    yield "{", "line 1", "not one JSON object"
    yield "[]", "", "expected an object"
    yield '{"id": "a", "id": "b"}', "", "same key more than once"
    yield changed(colour=1), "colour", "Extra inputs"
    yield changed(labels={"sefety": "pass"}), "labels.sefety", "unknown dimension"
    yield changed(labels={"criteria": "pass"}), "labels.criteria", "has 2 criteria"
    yield changed(labels={"criteria.3": "pass"}), "labels.criteria.3", "has 2 criteria"
    yield changed(labels={"tone": "pass"}), "labels.tone", "from 1 to 5"
    yield changed(labels={"tone": 6}), "labels.tone", "less than or equal to 5"
    yield changed(labels={"safety": 3}), "labels.safety", '"pass" or "fail"'
    yield changed(labels={"safety": True}), "labels.safety", ""
    yield changed(labels={"turns": "pass"}), "labels.turns", "unknown dimension"
    yield changed(scenario={**SCENARIO, "catgory": "x"}), "scenario.catgory", "Extra inputs"
    yield changed(events=base["events"][:-1]), "events", "end"
    yield changed(events=ended), "events.1.session_ended.reason", "required"
    yield changed(events=extra), "events.0.colour", "Unexpected"
    yield changed(events=inside), "events.1.user_turn.txet", "Unexpected"
    yield changed(events=other), "events", "scenario 'another'"
    yield changed(events=[{**e, "kind": "trace"} for e in base["events"]]), "", "no body"


@pytest.mark.parametrize(("bad", "path", "message"), list(misspelt()))
def test_what_is_wrong_with_a_line_is_told_with_its_place(
    tmp_path: Path, bad: Any, path: str, message: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        check(written(tmp_path, bad))
    said = str(caught.value)
    assert "labelled.jsonl:1: " in said
    assert message in said
    assert path in said.replace("labelled.jsonl:1", "line 1")


def test_every_problem_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    good = line("a", safety="pass")
    with pytest.raises(InvalidDocument) as caught:
        check(written(tmp_path, good, "{", changed(labels={"x": "pass", "tone": 9}), good))
    assert sorted({problem.line or 0 for problem in caught.value.problems}) == [2, 3, 4]
    assert "the session of line 1 already" in str(caught.value)
    with pytest.raises(InvalidDocument, match="no sessions"):
        check(written(tmp_path, "", ""))


@pytest.mark.parametrize(
    ("lines", "bounds", "code"),
    [
        ([line("a", safety="pass")], (None, None), EXIT_PASS),
        ([line("a", criteria_1="pass")], (None, None), EXIT_INCONCLUSIVE),
        ([line("a", safety="pass")], (0.5, None), EXIT_INCONCLUSIVE),
        ([line(f"s{n}", "4111" if n < 9 else "x", safety="fail" if n < 6 else "pass")
          for n in range(30)], (0.9, 0.7), EXIT_PASS),
        ([line(f"s{n}", "4111" if n < 9 else "x", safety="fail" if n < 6 else "pass")
          for n in range(30)], (0.95, None), EXIT_FAIL),
        ([line(f"s{n}", "4111" if n < 9 else "x", safety="fail" if n < 6 else "pass")
          for n in range(30)], (None, 0.75), EXIT_FAIL),
    ],
)  # fmt: skip
def test_exit_codes(
    tmp_path: Path, lines: list[Any], bounds: tuple[float | None, float | None], code: int
) -> None:
    report = dataclasses.asdict(calibrated(tmp_path, *lines))
    assert exit_code(report, *bounds) == code


@pytest.mark.parametrize(
    ("content", "samples", "said"),
    [
        (None, "1", "No such file"),
        ("", "1", "there are no sessions in it"),
        (json.dumps(line("a", safety="pass")), "4", "WINDTUNNEL_JUDGE_SAMPLES: "),
    ],
)
def test_what_keeps_the_judge_from_reporting_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    samples: str,
    said: str,
) -> None:
    monkeypatch.setenv("WINDTUNNEL_JUDGE_SAMPLES", samples)
    file, out = tmp_path / "people.jsonl", tmp_path / "report.json"
    if content is not None:
        file.write_text(content)
    assert main([str(file), str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_the_report_never_goes_where_the_labels_are(tmp_path: Path) -> None:
    file = written(tmp_path, line("a", safety="pass"))
    with pytest.raises(CliError, match="a file of its own"):
        run_judge(file, tmp_path / "." / file.name, {})
    assert check(file) == 1
