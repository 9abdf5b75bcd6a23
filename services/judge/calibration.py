"""How far the judge agrees with people, by dimension, over labelled trajectories.

`python -m services.judge.calibration LABELLED.jsonl REPORT.json` judges every session of a labelled
file (see `calibration_labels`) as the service would, under the settings that the service reads, and
writes the report. `windtunnel judge calibrate` is this and a table.

All criteria count together, whichever their number. What the judge leaves unscored, or finds not
applicable, agrees with nobody and disagrees with nobody: it is counted apart.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from schemas.errors import InvalidDocument
from schemas.pins import judge_pin
from schemas.scores import Dimension, DimensionScore, SessionScored
from services.judge.calibration_figures import Figure, Table, accuracy, kappa, tabulated
from services.judge.calibration_labels import (
    PASS_OR_FAIL,
    SESSION,
    LabelledSession,
    categories,
    check,
    sessions,
)
from services.judge.core import SessionJudge, judge_session
from services.judge.service import JudgeSettings, model_judge
from services.runtime.metrics import Metrics
from services.runtime.settings import ConfigurationError, load_settings

ENOUGH_LABELS = 30
ENOUGH_OF_EACH = 5
_AT_ONCE = 16
_REASONS = 3


@dataclass(frozen=True)
class Compared:
    """One label, and what the judge made of it: a verdict, or why there is none."""

    session: str
    dimension: str
    label: str
    verdict: str | None
    status: str
    """scored, unscored or not_applicable."""
    reason: str
    citations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """The judge and the labels on one dimension."""

    dimension: str
    labels: int
    compared: int
    unscored: int
    not_applicable: int
    categories: tuple[str, ...]
    table: Table
    """Counts by label (rows) and verdict (columns), in the order of the categories."""
    accuracy: Figure | None
    kappa: Figure | None
    weighted: bool
    """Whether kappa weighs near misses less, as it does for ratings."""
    false_passes: int
    """Labelled fail and passed by the judge: what lets a bad agent through. 0 for ratings."""
    false_fails: int
    too_few: str
    """Why the figures mean little; empty where there are enough labels."""
    unscored_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a calibration found."""

    judge: str
    sessions: int
    invalid: int
    """Sessions that the judge takes for spoilt, of which it scores little."""
    dimensions: tuple[Agreement, ...]
    disagreements: tuple[Compared, ...] = field(default=())


async def calibrate(
    labelled: Iterable[LabelledSession], pin: str, llm: SessionJudge | None
) -> Report:
    """Judge every session and compare. Holds a few sessions at a time."""
    found: list[list[Compared]] = []
    invalid = 0

    async def judged(session: LabelledSession) -> tuple[list[Compared], bool]:
        scored = await judge_session(session.events, session.brief, 0, llm)
        return list(_compared(session, scored)), scored.valid

    for some in _chunks(labelled):
        for compared, valid in await asyncio.gather(*map(judged, some)):
            found.append(compared)
            invalid += not valid
    return report(found, pin, invalid)


def report(found: Iterable[Iterable[Compared]], pin: str, invalid: int = 0) -> Report:
    """The report over what was found on each session."""
    by_dimension: dict[str, list[Compared]] = defaultdict(list)
    disagreements: list[Compared] = []
    count = 0
    for session in found:
        count += 1
        for one in session:
            by_dimension[one.dimension.partition(".")[0]].append(one)
            if one.verdict not in (None, one.label):
                disagreements.append(one)
    agreements = tuple(agreement(name, all_) for name, all_ in sorted(by_dimension.items()))
    return Report(pin, count, invalid, agreements, tuple(disagreements))


def agreement(dimension: str, found: Iterable[Compared]) -> Agreement:
    """The figures of one dimension."""
    known = tuple(categories(dimension))
    everything = list(found)
    pairs = [(one.label, one.verdict) for one in everything if one.verdict is not None]
    statuses = Counter(one.status for one in everything)
    wrong = Counter(pairs)
    weighted = known != PASS_OR_FAIL
    table = tabulated(pairs, known)
    reasons = Counter(one.reason for one in everything if one.status == "unscored")
    return Agreement(
        dimension=dimension,
        labels=len(everything),
        compared=len(pairs),
        unscored=statuses["unscored"],
        not_applicable=statuses["not_applicable"],
        categories=known,
        table=table,
        accuracy=accuracy(table),
        kappa=kappa(table, weighted=weighted),
        weighted=weighted,
        false_passes=wrong["fail", "pass"],
        false_fails=wrong["pass", "fail"],
        too_few=_too_few([label for label, _ in pairs], known),
        unscored_reasons=tuple(reason for reason, _ in reasons.most_common(_REASONS)),
    )


def _too_few(labels: list[str], known: tuple[str, ...]) -> str:
    if len(labels) < ENOUGH_LABELS:
        return f"{len(labels)} compared, {ENOUGH_LABELS} are needed"
    counts = Counter(labels)
    if known == PASS_OR_FAIL:
        for label in known:
            if counts[label] < ENOUGH_OF_EACH:
                return f"{counts[label]} labelled {label}, {ENOUGH_OF_EACH} are needed"
    elif len(counts) < 2:
        return "all labels are the same"
    return ""


def _compared(session: LabelledSession, scored: SessionScored) -> Iterator[Compared]:
    scores = {score.dimension: score for score in scored.dimensions}
    for dimension, label in session.labels.items():
        if dimension == SESSION:
            yield Compared(session.id, SESSION, label, *_session(scored))
            continue
        score = scores.get(dimension)
        if score is None:
            reason = "the judge does not score it as it is set up"
            yield Compared(session.id, dimension, label, None, "unscored", reason)
            continue
        verdict = _verdict(score)
        status = "unscored" if score.status == "scored" and verdict is None else score.status
        yield Compared(session.id, dimension, label, verdict, status, score.reason, score.citations)


def _session(scored: SessionScored) -> tuple[str | None, str, str]:
    if not scored.valid:
        return None, "unscored", f"the session is invalid: {scored.invalid_reason}"
    if scored.passed is None:
        return None, "unscored", "a gate is unscored and none failed"
    failed = [score.dimension for score in scored.dimensions if score.passed is False]
    reason = f"failed {', '.join(failed)}" if failed else "passed all gates"
    return PASS_OR_FAIL[not scored.passed], "scored", reason


def _verdict(score: DimensionScore) -> str | None:
    """The score in the words of the labels; None where it is none."""
    if score.status != "scored":
        return None
    if score.dimension in Dimension.QUALITY:
        return None if score.value is None else str(round(score.value * 4) + 1)
    passed = score.value == 1 if score.kind == "quality" else score.passed
    return None if passed is None else PASS_OR_FAIL[not passed]


def _chunks(labelled: Iterable[LabelledSession]) -> Iterator[list[LabelledSession]]:
    some: list[LabelledSession] = []
    for session in labelled:
        some.append(session)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


async def _run(source: Path) -> Report:
    settings = load_settings(JudgeSettings)
    check(source)
    llm = model_judge(settings, Metrics())
    if llm is not None:
        await llm.prepare()
    return await calibrate(sessions(source), llm.pin if llm else judge_pin(), llm)


def main(arguments: list[str]) -> int:
    """0 when the report was written, 2 with the reason on stderr when it could not be."""
    try:
        source, target = arguments
    except ValueError:
        print("usage: python -m services.judge.calibration LABELLED REPORT", file=sys.stderr)
        return 2
    try:
        found = asyncio.run(_run(Path(source)))
        text = json.dumps(asdict(found), indent=2, ensure_ascii=False, allow_nan=False)
        Path(target).write_text(f"{text}\n", encoding="utf-8")
    except (InvalidDocument, ConfigurationError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
