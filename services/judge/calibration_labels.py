"""Labelled trajectories: what people say of recorded sessions, to measure the judge by.

A file of JSON lines, one session each:

    {"id": "s-17",
     "scenario": {...},     a scenario as its YAML has it, defaults filled in
     "events": [...],       the session's trajectory events from start to end; null fields can
                            be left out
     "labels": {"task_completion": "pass", "criteria.1": "fail", "tone": 4, "session": "fail"}}

Gates, single criteria, `eval_unaware` and `session`, which is the verdict on the whole session, are
labelled "pass" or "fail"; tone, empathy and overall quality from 1 to 5. What is null or left out
is not labelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from schemas.briefs import JudgeBrief, judge_brief
from schemas.errors import InvalidDocument, Problem
from schemas.scenario import Scenario
from schemas.scores import Dimension
from schemas.trajectory import KINDS, TrajectoryEvent
from services.judge.trajectory import UnreadableTrajectory, read
from services.runtime.strict_json import NotStrict, read_object

SESSION = "session"
PASS_OR_FAIL = ("pass", "fail")
RATINGS = ("1", "2", "3", "4", "5")
MAX_LINE_BYTES = 32 * 2**20
_PROBLEMS = 50
_BINARY = {*Dimension.GATES, "assertions", Dimension.EVAL_UNAWARE, SESSION} - {Dimension.CRITERIA}

Label = Literal["pass", "fail"] | Annotated[StrictInt, Field(ge=1, le=5)] | None


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1)
    scenario: Scenario
    events: tuple[TrajectoryEvent, ...] = Field(min_length=2)
    labels: Mapping[str, Label]


@dataclasses.dataclass(frozen=True)
class LabelledSession:
    """One session with its labels, by dimension; ratings as their digit."""

    id: str
    brief: JudgeBrief
    events: tuple[TrajectoryEvent, ...]
    labels: Mapping[str, str]


def categories(dimension: str) -> Sequence[str]:
    """What a dimension is labelled with, in order."""
    return RATINGS if dimension in Dimension.QUALITY else PASS_OR_FAIL


def check(path: Path) -> int:
    """How many sessions the file has.

    Raises:
        InvalidDocument: with every problem of every line, fifty at most.
        OSError: the file cannot be read.
    """
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    sessions = 0
    for number, text in _lines(path):
        sessions += 1
        try:
            session = _session(text)
        except InvalidDocument as error:
            found = [dataclasses.replace(p, file=str(path), line=number) for p in error.problems]
            problems += found
        else:
            if session.id in seen:
                words = f"{session.id!r} is the session of line {seen[session.id]} already"
                problems.append(Problem("id", words, str(path), number))
            seen.setdefault(session.id, number)
        if len(problems) >= _PROBLEMS:
            break
    if not sessions:
        problems.append(Problem("", "there are no sessions in it", str(path)))
    if problems:
        raise InvalidDocument(problems[:_PROBLEMS])
    return sessions


def sessions(path: Path) -> Iterator[LabelledSession]:
    """The sessions of a file that was checked, one after the other."""
    for _, text in _lines(path):
        yield _session(text)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                words = f"a line has more than {MAX_LINE_BYTES >> 20} MiB"
                raise InvalidDocument([Problem("", words, str(path), number)])
            if line.strip():
                yield number, line


def _session(text: bytes) -> LabelledSession:
    try:
        document = read_object(text)
    except NotStrict as error:
        raise InvalidDocument([Problem("", f"it is not one JSON object ({error})")]) from None
    try:
        line = _Line.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        raise InvalidDocument(
            [Problem(".".join(map(str, item["loc"])), item["msg"]) for item in found]
        ) from None
    problems = [
        Problem(f"events.{number}.kind", f"there is no body of {event.kind!r}")
        for number, event in enumerate(line.events)
        if event.kind not in KINDS or getattr(event, event.kind) is None
    ]
    problems += [
        Problem(f"labels.{name}", words)
        for name, label in line.labels.items()
        if label is not None and (words := _wrong(name, label, line.scenario))
    ]
    try:
        trajectory = read(line.events)
    except UnreadableTrajectory as error:
        problems.append(Problem("events", str(error)))
    else:
        if trajectory.start.scenario_id != line.scenario.id:
            words = f"they are of scenario {trajectory.start.scenario_id!r}, not of this one"
            problems.append(Problem("events", words))
    if problems:
        raise InvalidDocument(problems)
    labels = {name: str(label) for name, label in line.labels.items() if label is not None}
    return LabelledSession(line.id, judge_brief(line.scenario), line.events, labels)


def _wrong(name: str, label: str | int, scenario: Scenario) -> str:
    """What is wrong with a label; empty if nothing is."""
    if name in Dimension.QUALITY:
        return "" if isinstance(label, int) else "expected a rating from 1 to 5"
    kind, _, number = name.partition(".")
    if kind == Dimension.CRITERIA:
        criteria = len(scenario.goals.criteria)
        if number not in map(str, range(1, criteria + 1)):
            return f"the scenario has {criteria} criteria; expected criteria.1 and so on"
    elif name not in _BINARY:
        known = ", ".join(sorted({*_BINARY, *Dimension.QUALITY}))
        return f"unknown dimension; expected criteria.1 and so on, or one of {known}"
    return "" if isinstance(label, str) else 'expected "pass" or "fail"'
