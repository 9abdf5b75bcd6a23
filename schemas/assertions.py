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


class _OneKey(_Model):
    """A mapping with exactly one of the fields."""

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

    flow_ids: tuple[Name, ...] = Field(min_length=1)
    operator: Literal["any", "all"] = "all"


class FlowEnd(_Model):
    """A flow's end, at a certain step if one is given."""

    flow_id: Name
    flow_step_id: Name | None = None


class Slot(_Model):
    """A slot; with a value if one is written, which null is too."""

    name: Name
    value: JsonValue = None

    @property
    def valued(self) -> bool:
        return "value" in self.model_fields_set


class Button(_Model):
    """A button: the keys that it must have at least, such as title and payload."""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str | None = None

    @property
    def keys(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


def _titled(value: Any) -> Any:
    return {"title": value} if isinstance(value, str) else value


class Utterance(_Model):
    """Something the agent says: a response's name, a text, buttons, or several of these."""

    utter_name: Name | None = None
    text_matches: Annotated[Name, AfterValidator(check_pattern)] | None = Field(
        default=None, description="A text, or a regular expression; case counts."
    )
    buttons: tuple[Annotated[Button, BeforeValidator(_titled)], ...] | None = Field(
        default=None, min_length=1
    )

    @model_validator(mode="after")
    def _something(self) -> Utterance:
        if self.utter_name is None and self.text_matches is None and self.buttons is None:
            raise ValueError("expected utter_name, text_matches or buttons")
        return self


class Relevant(_Model):
    """A generative response, and the score from 0 to 1 that it must reach."""

    utter_source: Name = Field(description="What generated it.")
    threshold: float = Field(default=THRESHOLD, ge=0, le=1)
    utter_name: Name | None = None


class Grounded(Relevant):
    """A generative response, and what it must be supported by."""

    ground_truth: Name | None = Field(
        default=None, description="Default: what the agent reports as the response's source."
    )


class Step(_OneKey):
    """A step of `sequencing`."""

    flow_started: Name | None = None
    flow_completed: Name | None = None
    flow_cancelled: Name | None = None
    flow_interrupted: Name | None = None
    action_executed: Name | None = None
    slot_was_set: Name | None = None


def _flow_ids(value: Any) -> Any:
    # How the two that take several flows were written before they had an operator.
    if isinstance(value, str):
        value = [value]
    return {"flow_ids": value} if isinstance(value, list | tuple) else value


AnyFlows = Annotated[Flows, BeforeValidator(_flow_ids)]
Slots = Annotated[tuple[Slot, ...], Field(min_length=1)]


class Assertion(_OneKey):
    """One assertion: a mapping with one key."""

    flow_started: AnyFlows | None = None
    flow_completed: FlowEnd | None = None
    flow_cancelled: FlowEnd | None = None
    action_executed: Name | None = None
    slot_was_set: Slots | None = None
    slot_was_not_set: Slots | None = None
    bot_uttered: Utterance | None = None
    bot_did_not_utter: Utterance | None = None
    pattern_clarification_contains: AnyFlows | None = None
    generative_response_is_relevant: Relevant | None = None
    generative_response_is_grounded: Grounded | None = None
    sequencing: Annotated[tuple[Step, ...], Field(min_length=1)] | None = None


def parse(entry: Any) -> Assertion:
    """One entry of `goals.assertions`.

    Raises:
        pydantic.ValidationError: it is no assertion. Raised from a validator of a larger model,
            its problems take their place in that model's.
    """
    return Assertion.model_validate(entry)
