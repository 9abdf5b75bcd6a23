"""The assertion language: what one entry of `goals.assertions` may be.

An entry is a mapping with one key, which is the assertion's type; a step of `sequencing` is one
likewise. Scenario files keep entries as they are written; `parse` reads one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from schemas.patterns import check_pattern

THRESHOLD = 0.5
"""What a generative response must reach where the assertion does not say."""

Name = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _one_key(schema: dict[str, Any]) -> None:
    """JSON Schema of the rule below: one key, and a value for it."""
    schema |= {"minProperties": 1, "maxProperties": 1}
    for key, value in schema["properties"].items():
        kinds = [kind for kind in value.pop("anyOf") if kind != {"type": "null"}]
        value.pop("default", None)
        schema["properties"][key] = (
            {**value, **kinds[0]} if len(kinds) == 1 else {**value, "anyOf": kinds}
        )


class _OneKey(_Model):
    """A mapping with exactly one of the fields."""

    model_config = ConfigDict(json_schema_extra=_one_key)

    @model_validator(mode="after")
    def _one(self) -> _OneKey:
        given = sorted(self.model_fields_set)
        if len(given) != 1:
            expected = ", ".join(type(self).model_fields)
            raise ValueError(f"expected exactly one of {expected}; got {given or 'none'}")
        if getattr(self, given[0]) is None:
            raise ValueError(f"expected a value for {given[0]}")
        return self

    @property
    def kind(self) -> str:
        """The one key."""
        return next(iter(self.model_fields_set))

    @property
    def body(self) -> Any:
        """The one key's value."""
        return getattr(self, self.kind)


class Flows(_Model):
    """Flows, of which any or all are meant."""

    flow_ids: tuple[Name, ...] = Field(min_length=1, description="The flows' ids.")
    operator: Literal["any", "all"] = Field(default="all", description="How many of them.")


class FlowEnd(_Model):
    """A flow's end, at a certain step if one is given."""

    flow_id: Name = Field(description="The flow's id.")
    flow_step_id: Name | None = Field(default=None, description="The step it ends with.")


class Slot(_Model):
    """A slot; with a value if one is written, which null is too."""

    name: Name = Field(description="The slot's name.")
    value: JsonValue = Field(default=None, description="Its value; default: any but null.")

    @property
    def valued(self) -> bool:
        return "value" in self.model_fields_set


class Button(_Model):
    """A button: the keys that it must have at least, such as title and payload."""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str | None = Field(default=None, description="What is on it.")

    @property
    def keys(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


def _titled(value: Any) -> Any:
    return {"title": value} if isinstance(value, str) else value


TitledButton = Annotated[Button, BeforeValidator(_titled, json_schema_input_type=Button | str)]


class Utterance(_Model):
    """Something the agent says: a response's name, a text, buttons, or several of these."""

    utter_name: Name | None = Field(default=None, description="The response's name.")
    text_matches: Annotated[Name, AfterValidator(check_pattern)] | None = Field(
        default=None, description="A text, or a regular expression; case counts."
    )
    buttons: tuple[TitledButton, ...] | None = Field(
        default=None, min_length=1, description="Its buttons: titles, or what each has at least."
    )

    @model_validator(mode="after")
    def _something(self) -> Utterance:
        if self.utter_name is None and self.text_matches is None and self.buttons is None:
            raise ValueError("expected utter_name, text_matches or buttons")
        return self


class Relevant(_Model):
    """A generative response, and the score from 0 to 1 that it must reach."""

    utter_source: Name = Field(description="What generated it.")
    threshold: float = Field(default=THRESHOLD, ge=0, le=1, description="The score to reach.")
    utter_name: Name | None = Field(default=None, description="The response's name.")


class Grounded(Relevant):
    """A generative response, and what it must be supported by."""

    ground_truth: Name | None = Field(
        default=None, description="Default: what the agent reports as the response's source."
    )


class Step(_OneKey):
    """A step of `sequencing`."""

    flow_started: Name | None = Field(default=None, description="This flow starts.")
    flow_completed: Name | None = Field(default=None, description="This flow reaches its end.")
    flow_cancelled: Name | None = Field(default=None, description="This flow is given up.")
    flow_interrupted: Name | None = Field(
        default=None, description="This flow is left for another."
    )
    action_executed: Name | None = Field(default=None, description="This action is run.")
    slot_was_set: Name | None = Field(default=None, description="This slot is given a value.")


def _flow_ids(value: Any) -> Any:
    # How the two that take several flows were written before they had an operator.
    if isinstance(value, str):
        value = [value]
    return {"flow_ids": value} if isinstance(value, list | tuple) else value


AnyFlows = Annotated[
    Flows,
    BeforeValidator(
        _flow_ids,
        json_schema_input_type=Flows | Name | Annotated[list[Name], Field(min_length=1)],
    ),
]
Slots = Annotated[tuple[Slot, ...], Field(min_length=1)]


class Assertion(_OneKey):
    """One assertion: a mapping with one key."""

    flow_started: AnyFlows | None = Field(default=None, description="These flows start.")
    flow_completed: FlowEnd | None = Field(default=None, description="A flow reaches its end.")
    flow_cancelled: FlowEnd | None = Field(default=None, description="A flow is given up.")
    action_executed: Name | None = Field(default=None, description="This action is run.")
    slot_was_set: Slots | None = Field(default=None, description="These slots are given values.")
    slot_was_not_set: Slots | None = Field(
        default=None, description="These slots are not given values."
    )
    bot_uttered: Utterance | None = Field(default=None, description="The agent says this.")
    bot_did_not_utter: Utterance | None = Field(
        default=None, description="The agent does not say this."
    )
    pattern_clarification_contains: AnyFlows | None = Field(
        default=None, description="The user is asked which of these flows is meant."
    )
    generative_response_is_relevant: Relevant | None = Field(
        default=None, description="A generated response answers what was asked."
    )
    generative_response_is_grounded: Grounded | None = Field(
        default=None, description="A generated response is supported by its source."
    )
    sequencing: Annotated[tuple[Step, ...], Field(min_length=1)] | None = Field(
        default=None, description="These happen in this order, others in between allowed."
    )


def parse(entry: Any) -> Assertion:
    """One entry of `goals.assertions`.

    Raises:
        pydantic.ValidationError: it is no assertion. Raised from a validator of a larger model,
            its problems take their place in that model's.
    """
    return Assertion.model_validate(entry)
