"""What a model is asked about a whole session, and what its answers come to.

Two kinds of question: is a criterion true, and how good is a quality of the agent on a scale. One
question may be about several of them, each of which is answered by itself: a missing or unusable
answer is that one's own affair. An answer counts only when every citation in it names a step of
the trajectory.

Models prefer what comes first. So a criterion's samples come in pairs that show everything in
opposite order - the criteria among themselves, and the two verdicts - and what order alone brings
about cancels out.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.judge.assertions.rating import Unusable, problem
from services.judge.transcript import LEGEND, Transcript
from services.runtime.strict_json import NotStrict, read_object

_RATIONALE_CHARS = 2_000
_ALONE = "verdict"
_NAMED_STEPS = 100
"""Up to so many steps the answer's schema lists their names; providers bound a schema's size."""

_CRITERIA = """\
You judge how an AI agent behaved towards a user. You are given {what}, and the record of the whole
session. Decide whether {each} is {options} of the session as a whole: read every step, from the
first to the last, and not only the final answer. What the agent says it did is not evidence that it
did it; tool calls and their responses are.{apart}

{legend}

Answer with a JSON object: {shape}`rationale`, two or three sentences; `verdict`, {verdicts};
`citations`, the names of the steps that your verdict rests on, at least one, exactly as they stand
in `step`."""

_QUALITY = """\
You rate how an AI agent treated a user, from the record of the whole session. Rate each of these by
itself, over all of the agent's answers and not only the last:

{scales}

Ratings are whole numbers from 1 to 5: 1 is very poor, 3 acceptable, 5 excellent. What the agent
achieved does not matter here unless the definition says so.

{legend}

Answer with a JSON object that has for each of {names} an object: `rationale`, one or two sentences;
`rating`, 1 to 5; `citations`, the names of the steps that your rating rests on, at least one,
exactly as they stand in `step`."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rationale: str = Field(min_length=1)
    citations: list[str] = Field(min_length=1)


class Verdict(_Answer):
    """A model's word on one criterion."""

    verdict: Literal["pass", "fail"]


class Rated(_Answer):
    """A model's word on one quality."""

    rating: Annotated[int, Field(ge=1, le=5, strict=True)]


A = TypeVar("A", bound=_Answer)


@dataclass(frozen=True)
class Presentation:
    """In which order one sample shows things."""

    order: tuple[int, ...]
    """Positions in the list of criteria, in the order in which they are shown."""
    fail_first: bool = False
    """Whether the verdict *fail* is named before *pass*."""


def presentations(criteria: int, samples: int, seed: int) -> tuple[Presentation, ...]:
    """How each sample shows the criteria: shuffled by the seed, every second one the reverse of the
    one before it.
    """
    found: list[Presentation] = []
    for sample in range(samples):
        if sample % 2:
            found.append(Presentation(found[-1].order[::-1], fail_first=True))
            continue
        order = list(range(criteria))
        random.Random(f"{seed}:judge:{sample}").shuffle(order)
        found.append(Presentation(tuple(order)))
    return tuple(found)


@dataclass(frozen=True)
class Sheet(Generic[A]):
    """A question to a model. `labels` are the keys under which it answers; a single criterion is
    answered without any.
    """

    system: str
    user: str
    labels: tuple[str, ...]
    answer: type[A]
    schema: dict[str, Any]

    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


def labels(criteria: int) -> tuple[str, ...]:
    """The keys under which so many criteria are answered."""
    return (_ALONE,) if criteria == 1 else tuple(str(n) for n in range(1, criteria + 1))


def criteria_sheet(
    criteria: Sequence[str], fail_first: bool, outcome: str, transcript: Transcript
) -> Sheet[Verdict]:
    """One or more criteria, in the order in which they are to be shown."""
    one = len(criteria) == 1
    verdicts = ['"pass" when the statement is true', '"fail" when it is not']
    options = ["true", "untrue"]
    enum = ["pass", "fail"]
    if fail_first:
        verdicts = ['"fail" when the statement is not true', '"pass" when it is']
        options, enum = options[::-1], enum[::-1]
    names = labels(len(criteria))
    system = _CRITERIA.format(
        what="one criterion, which is a statement about the agent's behaviour"
        if one
        else f"{len(criteria)} criteria, which are statements about the agent's behaviour",
        each="the statement" if one else "each statement",
        options=" or ".join(options),
        apart=""
        if one
        else "\nJudge each by itself: one verdict says nothing about another, and they may all be "
        "the same.",
        legend=LEGEND.format(boundary=transcript.boundary),
        shape="" if one else "for each criterion's number, as a string, an object with ",
        verdicts=" and ".join(verdicts),
    )
    told = (
        f"Criterion: {criteria[0]}"
        if one
        else "\n".join(
            f"Criterion {label}: {text}" for label, text in zip(names, criteria, strict=True)
        )
    )
    aim = f"The user's aim: {outcome}\n\n" if outcome else ""
    item = _item(transcript.steps, verdict={"type": "string", "enum": enum})
    schema = item if one else _object(dict.fromkeys(names, item))
    user = f"{told}\n\n{aim}{transcript.text}"
    return Sheet(system, user, names, Verdict, _format("verdict", schema))


def quality_sheet(scales: Mapping[str, str], outcome: str, transcript: Transcript) -> Sheet[Rated]:
    """Qualities with their definitions."""
    system = _QUALITY.format(
        scales="\n".join(f"- `{name}`: {definition}" for name, definition in scales.items()),
        names=", ".join(f"`{name}`" for name in scales),
        legend=LEGEND.format(boundary=transcript.boundary),
    )
    aim = f"The user's aim: {outcome}\n\n" if outcome else ""
    item = _item(transcript.steps, rating={"type": "integer", "enum": [1, 2, 3, 4, 5]})
    schema = _object(dict.fromkeys(scales, item))
    user = f"{aim}{transcript.text}"
    return Sheet(system, user, tuple(scales), Rated, _format("ratings", schema))


def answers(
    sheet: Sheet[A], text: str, steps: Collection[str]
) -> tuple[dict[str, A], dict[str, str]]:
    """The usable answers by label, and what is wrong with the others.

    Raises:
        Unusable: the text is no JSON object at all.
    """
    try:
        given: dict[str, Any] = read_object(text.encode())
    except (NotStrict, UnicodeEncodeError) as error:
        raise Unusable(f"it is not one JSON object ({error})") from None
    if sheet.labels == (_ALONE,):
        given = {_ALONE: given}
    found: dict[str, A] = {}
    wrong: dict[str, str] = {}
    for label in sheet.labels:
        if label not in given:
            wrong[label] = "missing"
            continue
        try:
            answer = sheet.answer.model_validate(given[label])
        except ValidationError as error:
            wrong[label] = problem(error)
            continue
        if strangers := [step for step in answer.citations if step not in steps]:
            names = ", ".join(step[:40] for step in strangers[:5])
            wrong[label] = f"citations that are no steps of the record: {names}"
            continue
        found[label] = answer.model_copy(update={"rationale": answer.rationale[:_RATIONALE_CHARS]})
    return found, wrong


def _item(steps: Sequence[str], **answer: Any) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "string"}
    if len(steps) <= _NAMED_STEPS:
        step["enum"] = list(steps)
    # The rationale first: a verdict that is written after it rests on it.
    return _object(
        {
            "rationale": {"type": "string"},
            **answer,
            "citations": {"type": "array", "items": step},
        }
    )


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    # Written out: strict structured output takes only a part of JSON Schema.
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _format(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "strict": True, "schema": schema},
    }
