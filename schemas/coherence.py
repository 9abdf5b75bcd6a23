"""What the fields of a scenario owe one another, told together with what is wrong with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from schemas.canaries import named
from schemas.spans import NOTHING, length_of, unit_of

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

PLANTED_IN = (
    "simulation_context", "setup", "user", "conversations", "world", "variations", "failures",
    "rules",
)  # fmt: skip
"""The fields in whose texts a scenario may plant canaries."""
_JUDGED_IN = ("expect", "policies", "goals", "recovery", "actors")


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
    for name in ("arrival", "objectives"):
        if category != "load" and _of(_of(scenario, "load"), name) is not None:
            yield ("load", name), "only scenarios of category load are run under load"
    if category == "long-horizon" and len(_items(conversations)) < 2:
        yield ("category",), "category long-horizon needs at least two `conversations`"
    if category == "failure-injection" and not _items(_of(scenario, "failures")):
        yield ("category",), "category failure-injection needs `failures`"
    if _items(conversations) and _items(_of(_of(scenario, "user"), "goals")):
        message = "write the goals in `user.goals` or in `conversations`, not in both"
        yield ("conversations",), message
    yield from _recording(scenario)
    yield from _user_tools(scenario)
    yield from _world(scenario)
    known = _of(_of(scenario, "user"), "facts")
    for number, variation in enumerate(_items(_of(scenario, "variations"))):
        facts = _of(variation, "facts")
        for name in facts if isinstance(facts, Mapping) else ():
            if not isinstance(known, Mapping) or name not in known:
                place = ("variations", number, "facts", name)
                yield place, f"the user has no fact {name}; name it in `user.facts`"
    yield from _canaries(scenario)
    yield from _tau2(scenario)
    yield from _faults(scenario)
    yield from _actors(_of(scenario, "actors"))
    for what in ("failures", "policies"):
        seen: Counter[str] = Counter()
        for number, item in enumerate(_items(_of(scenario, what))):
            name = _of(item, "id")
            if isinstance(name, str):
                seen[name] += 1
                if seen[name] > 1:
                    yield (what, number, "id"), f"{what}: repeated id {name}"


def _faults(scenario: Any) -> Iterator[tuple[Location, str]]:
    """What a failure's kind asks for, and windows in which nothing can happen."""
    for number, failure in enumerate(_items(_of(scenario, "failures"))):
        place, kind = ("failures", number), _of(failure, "kind")
        text, texts = _of(failure, "content"), _of(failure, "contents") or _of(failure, "corpus")
        if kind == "content" and not texts and not (isinstance(text, str) and text.strip()):
            yield place, "kind content needs `content`, `contents` or a `corpus`"
        if text and texts:
            yield (*place, "content"), "give `content`, or `contents` and `corpus`, not both"
        if _of(failure, "latency") is not None:
            if kind not in ("timeout", "slow"):
                yield (*place, "latency"), "only timeout and slow take time"
            if _of(failure, "delay_ms"):
                yield (*place, "latency"), "give `delay_ms` or `latency`, not both"
    if _of(scenario, "profile_multiplier") not in (None, 1) and not _of(
        scenario, "failure_profile"
    ):
        yield ("profile_multiplier",), "it is for a `failure_profile`; name one"
    for what in ("failures", "rules"):
        for number, selector in enumerate(_items(_of(scenario, what))):
            for within, message in _window(scenario, selector):
                yield (what, number, *within), message


def _window(scenario: Any, selector: Any) -> Iterator[tuple[Location, str]]:
    """Parts of a session in which a selector never applies."""
    conversations = len(_items(_of(scenario, "conversations"))) or 1
    for place, number in enumerate(_items(_of(selector, "conversations"))):
        if isinstance(number, int) and number > conversations:
            message = f"there is no conversation {number}; the scenario has {conversations}"
            yield ("conversations", place), message
    after, until = _of(selector, "after") or NOTHING, _of(selector, "until")
    try:
        begins = length_of(after)
        over = until is not None and length_of(until)
    except (AttributeError, TypeError, ValueError):
        return
    if over is not False and over <= begins and unit_of(until) == unit_of(after):
        yield ("until",), f"it is over at {until}, before it begins at {after}"
    if begins and unit_of(after) == "time" and not _time_passes(scenario):
        yield (
            ("after",),
            "no world time passes here; give the world's `turn_takes` or `call_takes`, or an "
            "`after` to a later conversation, or count turns or calls",
        )


def _time_passes(scenario: Any) -> bool:
    world, later = _of(scenario, "world"), _items(_of(scenario, "conversations"))
    spans = [_of(world, "turn_takes"), _of(world, "call_takes"), *(_of(c, "after") for c in later)]
    return any(isinstance(span, str) and span.strip("0")[:1].isdigit() for span in spans)


def _actors(actors: Any) -> Iterator[tuple[Location, str]]:
    """Hand-offs that are expected and yet forbidden."""
    roles = _of(actors, "roles")
    roles = roles if isinstance(roles, Mapping) else {}
    for number, handoff in enumerate(_items(_of(actors, "handoffs"))):
        place, by, to = ("actors", "handoffs", number), _of(handoff, "by"), _of(handoff, "to")
        allowed = _of(roles.get(by), "hands_to") if isinstance(by, str) else None
        if isinstance(to, str) and isinstance(allowed, list | tuple) and to not in allowed:
            yield (*place, "to"), f"{by} may not hand over to {to}; name it in its `hands_to`"
        for field, name in (("by", by), ("to", to)):
            if _of(actors, "others") is False and isinstance(name, str) and name not in roles:
                yield (*place, field), f"{name} has no role, and `others` may not act"


def _tau2(scenario: Any) -> Iterator[tuple[Location, str]]:
    """The reward of tau2's rests on the state of its own world."""
    domain = _of(_of(_of(scenario, "expect"), "tau2"), "domain")
    if isinstance(domain, str) and _of(_of(scenario, "world"), "name") != f"tau2_{domain}":
        message = f"the task is solved in the world tau2_{domain}: give it as the world's `name`"
        yield ("expect", "tau2"), message


def _canaries(scenario: Any) -> Iterator[tuple[Location, str]]:
    given = _of(scenario, "canaries")
    known = set(given) if isinstance(given, Mapping) else set[str]()
    for field in PLANTED_IN:
        for path, name in named(_of(scenario, field)):
            if name not in known:
                yield (field, *path), f"there is no canary {name}; name it in `canaries`"
    for field in _JUDGED_IN:
        for path, name in named(_of(scenario, field)):
            message = f"{{canary.{name}}} is looked for everywhere; here it has no value"
            yield (field, *path), message


def _world(scenario: Any) -> Iterator[tuple[Location, str]]:
    """Who there is to answer, and what is given to somebody who is not there."""
    world = _of(scenario, "world")
    if world is None:
        return
    named, answers = bool(_of(world, "name")), _of(world, "answers") or "world"
    if not named and answers == "world":
        yield ("world",), "give the `name` of a world, or `answers: schema` or `answers: model`"
    if _of(world, "briefing") and answers != "model":
        yield ("world", "briefing"), "only a model reads a briefing: `answers: model`"
    if not named and answers == "schema":
        for field in ("state", "files"):
            if _of(world, field):
                yield ("world", field), "made-up answers know of no state: give a world's `name`"


def _recording(scenario: Any) -> Iterator[tuple[Location, str]]:
    """What a recording owes the rest of its scenario."""
    lines = _items(_of(_of(scenario, "user"), "recording"))
    if not lines:
        return
    place = ("user", "recording")
    if not any(_of(line, "who") == "user" for line in lines):
        yield place, "a recording needs a line of the user's"
    recorded = 1 + sum(_of(line, "ending") == "conversation_over" for line in lines)
    written = len(_items(_of(scenario, "conversations"))) or 1
    if recorded > written:
        message = f"recorded are {recorded} conversations; write as many in `conversations`"
        yield place, message


def _user_tools(scenario: Any) -> Iterator[tuple[Location, str]]:
    """What the user's tools and actions owe one another, and the agent's failures and rules."""
    user = _of(scenario, "user")
    has = [
        tool if isinstance(tool, str) else _of(tool, "name") for tool in _items(_of(user, "tools"))
    ]
    for number, name in enumerate(has):
        if isinstance(name, str) and name in has[:number]:
            yield ("user", "tools", number), f"the user has {name} already"
    world = _of(scenario, "world")
    if has and not _of(world, "name"):
        yield ("user", "tools"), "the user's tools work on a world: name one in `world`"
    for number, action in enumerate(_items(_of(user, "actions"))):
        tool = _of(action, "tool")
        if isinstance(tool, str) and tool not in has:
            place = ("user", "actions", number, "tool")
            yield place, f"the user has no tool {tool}; name it in `user.tools`"
    for what in ("failures", "rules"):
        for number, selector in enumerate(_items(_of(scenario, what))):
            if (tool := _of(selector, "tool")) in has and isinstance(tool, str):
                message = f"{tool} is the user's; {what} are for the agent's tools"
                yield (what, number, "tool"), message


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
