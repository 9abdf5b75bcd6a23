"""What the fields of a scenario owe one another, told together with what is wrong with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]


def coherent(data: Any, validate: Callable[[Any], M]) -> M:
    """The model of the data, which is a scenario.

    Raises:
        ValidationError: with the mistakes in single fields and those between fields.
    """
    between = [
        InitErrorDetails(type=PydanticCustomError("value_error", cast(Any, message)),
                         loc=location, input=data)
        for location, message in incoherences(data)
    ]  # fmt: skip
    try:
        model = validate(data)
    except ValidationError as error:
        if not between:
            raise
        raise ValidationError.from_exception_data(error.title, _again(error) + between) from None
    if between:
        raise ValidationError.from_exception_data(type(model).__name__, between)
    return model


def incoherences(scenario: Any) -> Iterator[tuple[Location, str]]:
    """Where fields do not go together, and how they would.

    `scenario` is one, or what may become one: fields of a wrong type are passed over.
    """
    category, conversations = _of(scenario, "category"), _of(scenario, "conversations")
    if category == "load" and _of(scenario, "load") is None:
        yield ("category",), "category load needs `load: {sessions, concurrency}`"
    if category == "long-horizon" and len(_items(conversations)) < 2:
        yield ("category",), "category long-horizon needs at least two `conversations`"
    if category == "failure-injection" and not _items(_of(scenario, "failures")):
        yield ("category",), "category failure-injection needs `failures`"
    if _items(conversations) and _items(_of(_of(scenario, "user"), "goals")):
        message = "write the goals in `user.goals` or in `conversations`, not in both"
        yield ("conversations",), message
    world = _of(scenario, "world")
    if world is not None and not _of(world, "name") and _of(world, "answers") in (None, "world"):
        yield ("world",), "give the `name` of a world, or `answers: schema` or `answers: model`"
    known = _of(_of(scenario, "user"), "facts")
    for number, variation in enumerate(_items(_of(scenario, "variations"))):
        facts = _of(variation, "facts")
        for name in facts if isinstance(facts, Mapping) else ():
            if not isinstance(known, Mapping) or name not in known:
                place = ("variations", number, "facts", name)
                yield place, f"the user has no fact {name}; name it in `user.facts`"
    for what in ("failures", "policies"):
        seen: Counter[str] = Counter()
        for number, item in enumerate(_items(_of(scenario, what))):
            name = _of(item, "id")
            if isinstance(name, str):
                seen[name] += 1
                if seen[name] > 1:
                    yield (what, number, "id"), f"{what}: repeated id {name}"


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _again(error: ValidationError) -> list[InitErrorDetails]:
    """The errors as they were. As custom ones they keep type, words and context, whatever kind."""
    return [
        InitErrorDetails(
            type=PydanticCustomError(
                cast(Any, details["type"]), cast(Any, details["msg"]), details.get("ctx")
            ),
            loc=details["loc"],
            input=details["input"],
        )
        for details in error.errors(include_url=False)
    ]
