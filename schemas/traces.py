"""Trace events: what an agent's own runtime reports on the side channel (R10).

One JSON object an event: `type`, `payload`, and the `version` of the payload's shape. The models
below validate what is posted and are what the JSON Schema and docs/trace-events.md are made from.
Keys of a payload that are not described here are kept as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic import model_validator as validator

VERSIONS = (1,)
MAX_EVENTS = 100
"""The most events that one request may carry."""

EVENTS_LEFT_OUT = "tracker events were"
"""In the soft warning of a turn whose state events are not all in the trajectory; what was not
reported says nothing then."""

_MAX_PROBLEMS = 20
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}"
ACTOR_PATH = rf"{_LABEL}(/{_LABEL}){{0,15}}"
"""A sub-agent's call path: at most 16 labels, as in X-Pipelines-Actor-Id."""

Name = Annotated[str, Field(min_length=1, max_length=255)]
ActorPath = Annotated[str, Field(pattern=f"^{ACTOR_PATH}$", max_length=1039)]
FlowIds = Annotated[list[Name], Field(min_length=1)]


class _Payload(BaseModel):
    """Strict about what it knows, indifferent to what it does not."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = Field(default=1, ge=1, le=1, description="The version of the payload's shape.")


class Reasoning(_Payload):
    """What the agent thought: as text, or as the blocks its model gave. One of them at least."""

    text: str | None = None
    blocks: list[dict[str, JsonValue]] | None = Field(
        default=None, description="As in `thinking` of a rich message, in any form."
    )

    @validator(mode="after")
    def _says_something(self) -> Reasoning:
        if self.text is None and self.blocks is None:
            raise ValueError("text or blocks is required")
        return self


class PlanStep(_Payload):
    """One step of a plan."""

    text: str = Field(min_length=1)
    status: Literal["pending", "in_progress", "completed", "failed", "skipped"] = "pending"


class Plan(_Payload):
    """What the agent means to do, whole: a later plan of the same actor replaces it."""

    steps: list[Annotated[str, Field(min_length=1)] | PlanStep] = Field(
        description="A step that is only a text is pending."
    )


class Handoff(_Payload):
    """Control passes from one sub-agent to another."""

    from_: ActorPath | None = Field(
        default=None, alias="from", description="Without it: the actor of X-Pipelines-Actor-Id."
    )
    to: ActorPath
    reason: str | None = None


class _Flow(_Payload):
    flow_id: Name


class FlowStarted(_Flow):
    """A flow was started."""

    event: Literal["flow_started"]


class FlowCompleted(_Flow):
    """A flow reached its end."""

    event: Literal["flow_completed"]
    flow_step_id: Name | None = Field(default=None, description="The step it ended with.")


class FlowCancelled(_Flow):
    """A flow was given up."""

    event: Literal["flow_cancelled"]
    flow_step_id: Name | None = Field(default=None, description="The step it was at.")


class FlowInterrupted(_Flow):
    """A flow was left for another one, to be taken up again."""

    event: Literal["flow_interrupted"]
    flow_step_id: Name | None = Field(default=None, description="The step it was at.")


class ActionExecuted(_Payload):
    """An action was run."""

    event: Literal["action_executed"]
    name: Name


class SlotWasSet(_Payload):
    """A slot was given a value; null empties it."""

    event: Literal["slot_was_set"]
    name: Name
    value: JsonValue


class PatternClarification(_Payload):
    """The user was asked which of several flows was meant."""

    event: Literal["pattern_clarification"]
    flow_ids: FlowIds = Field(description="The flows that were suggested.")


class BotUttered(_Payload):
    """The agent said something by way of a named response, or with buttons."""

    event: Literal["bot_uttered"]
    text: str | None = None
    utter_name: Name | None = Field(default=None, description="The response's name.")
    utter_source: Name | None = Field(default=None, description="What generated it.")
    buttons: list[dict[str, JsonValue]] | None = None


Reported = (
    FlowStarted | FlowCompleted | FlowCancelled | FlowInterrupted | ActionExecuted | SlotWasSet
    | PatternClarification
)  # fmt: skip
State = Annotated[Reported | BotUttered, Field(discriminator="event")]


class Custom(_Payload):
    """Anything else."""

    name: Name
    data: JsonValue = None


class ReasoningEvent(_Event):
    """Intermediate reasoning."""

    type: Literal["reasoning"]
    payload: Reasoning


class PlanEvent(_Event):
    """A plan, or how far it is."""

    type: Literal["plan"]
    payload: Plan


class HandoffEvent(_Event):
    """Control passes between sub-agents."""

    type: Literal["handoff"]
    payload: Handoff


class StateEvent(_Event):
    """A flow, slot or action event of a dialogue runtime; assertions are checked on these."""

    type: Literal["state"]
    payload: State


class CustomEvent(_Event):
    """What fits none of the others."""

    type: Literal["custom"]
    payload: Custom


Event = Annotated[
    ReasoningEvent | PlanEvent | HandoffEvent | StateEvent | CustomEvent,
    Field(discriminator="type"),
]


class Batch(BaseModel):
    """Several events, in the order in which they happened; all are taken, or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    events: list[Event] = Field(min_length=1, max_length=MAX_EVENTS)


_POST: TypeAdapter[Any] = TypeAdapter(Event | Batch)
_ONE: TypeAdapter[Any] = TypeAdapter(Event)
_SEVERAL: TypeAdapter[Any] = TypeAdapter(Batch)


class TraceInvalid(ValueError):
    """The body is no trace event and no batch of them."""

    def __init__(self, problems: list[dict[str, str]]) -> None:
        super().__init__(problems[0]["message"])
        self.problems = problems


class VersionUnknown(ValueError):
    """An event has a version that is not one of VERSIONS."""


def parse(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events in a body, as they were posted and in their order.

    Raises:
        VersionUnknown: an event's version is a number that is not known here.
        TraceInvalid: anything else is wrong.
    """
    batch = "events" in body
    events = body["events"] if batch else [body]
    for event in events if isinstance(events, list) else []:
        version = event.get("version", 1) if isinstance(event, dict) else 1
        if isinstance(version, int) and not isinstance(version, bool) and version not in VERSIONS:
            raise VersionUnknown(str(version))
    try:
        (_SEVERAL if batch else _ONE).validate_python(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [
            {"path": _pointer(body, item["loc"]), "message": item["msg"][:500]}
            for item in found[:_MAX_PROBLEMS]
        ]
        raise TraceInvalid(problems) from None
    return list(events)


def _pointer(body: Any, where: tuple[int | str, ...]) -> str:
    """A JSON pointer into the body; `where` also names the models that were tried on the way."""
    parts: list[str] = []
    for number, part in enumerate(where):
        if isinstance(part, int) if isinstance(body, list) else _has(body, part):
            body = body[part]
        elif not isinstance(body, dict) or number < len(where) - 1:
            continue
        parts.append(str(part).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{part}" for part in parts)[:500]


def _has(value: Any, key: int | str) -> bool:
    return isinstance(value, dict) and key in value


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a body, which is served at /schemas/trace-event.json."""
    schema, shapes = body_schema("#/$defs/{model}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "TraceEvent",
        "description": "A trace event, or a batch of them.",
        **schema,
        "$defs": shapes,
    }


def body_schema(ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a body, and those it refers to by name."""
    schema = _POST.json_schema(ref_template=ref_template)
    shapes: dict[str, Any] = schema.pop("$defs")
    # What the model's validator checks, as JSON Schema.
    shapes["Reasoning"]["anyOf"] = [
        {"required": [name], "properties": {name: {"type": kind}}}
        for name, kind in (("text", "string"), ("blocks", "array"))
    ]
    return schema, shapes
