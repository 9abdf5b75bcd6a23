"""Patterns over what happens in a session: what policies are about. docs/policies.md defines them.

A pattern asks for some things and leaves the rest open: a call that has more arguments than the
pattern names fits it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from schemas.model import TOOL_NAME, Model, Pattern, Pointer
from schemas.traces import ACTOR_PATH

Name = Annotated[str, Field(min_length=1, max_length=255)]
Actor = Annotated[str, Field(pattern=f"^{ACTOR_PATH}$")]
"""A sub-agent, by its whole call path or by the end of it."""


class Condition(Model):
    """What a value must be like. All that is given must hold; a missing value fits nothing."""

    above: float | None = Field(default=None, description="A number greater than this.")
    below: float | None = Field(default=None, description="A number less than this.")
    matches: Pattern | None = Field(default=None, description="A text in which this is found.")
    one_of: tuple[JsonValue, ...] = Field(default=(), description="One of these values.")
    none_of: tuple[JsonValue, ...] = Field(default=(), description="None of these values.")

    @model_validator(mode="after")
    def _says_something(self) -> Condition:
        bounded = self.above is not None or self.below is not None or self.matches is not None
        if not (bounded or self.one_of or self.none_of):
            raise ValueError(f"expected one of {', '.join(type(self).model_fields)}")
        return self


class CallMatch(Model):
    """A pattern over tool calls."""

    tool: str = Field(pattern=TOOL_NAME, description="The tool's name.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Arguments a call must have, at least."
    )
    where: Mapping[Pointer, Condition] = Field(
        default_factory=dict, description="What arguments must be like, by JSON pointer."
    )
    ok: bool | None = Field(
        default=None, description="True: succeeded (not refused, failed or an error); false: not."
    )
    response: Mapping[Pointer, JsonValue] = Field(
        default_factory=dict, description="What the response must contain, by JSON pointer."
    )
    actor: Actor | None = Field(default=None, description="The sub-agent that makes it.")


class SlotMatch(Model):
    """A pattern over slots that are set."""

    name: Name = Field(description="The slot's name.")
    value: JsonValue = Field(default=None, description="What it is set to; default: anything.")


class HandoffMatch(Model):
    """A pattern over hand-offs between sub-agents."""

    by: Actor | None = Field(default=None, description="Who hands over; default: anybody.")
    to: Actor | None = Field(default=None, description="To whom; default: anybody.")


class CustomMatch(Model):
    """A pattern over custom trace events."""

    name: Name = Field(description="The event's name.")
    data: Mapping[Pointer, JsonValue] = Field(
        default_factory=dict, description="What its data must contain, by JSON pointer."
    )


class Moments(Model):
    """Patterns over what happens; a thing fits when it fits any of them."""

    call: CallMatch | None = Field(default=None, description="A tool call of the agent.")
    says: Pattern | None = Field(default=None, description="Something the agent says.")
    user_says: Pattern | None = Field(default=None, description="Something the user says.")
    flow_started: Name | None = Field(default=None, description="A flow is started.")
    flow_completed: Name | None = Field(default=None, description="A flow reaches its end.")
    flow_cancelled: Name | None = Field(default=None, description="A flow is given up.")
    flow_interrupted: Name | None = Field(default=None, description="A flow is left for another.")
    action_executed: Name | None = Field(default=None, description="An action is run.")
    slot_was_set: Name | SlotMatch | None = Field(default=None, description="A slot is set.")
    handoff: HandoffMatch | None = Field(
        default=None, description="A sub-agent hands over to another."
    )
    custom: Name | CustomMatch | None = Field(
        default=None, description="A trace event of the agent's own."
    )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The fields that are given."""
        return tuple(name for name in KINDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _something_is_given(self) -> Moments:
        if not self.kinds:
            raise ValueError(f"expected one of {', '.join(KINDS)}; got none")
        return self


KINDS = tuple(Moments.model_fields)


class Moment(Moments):
    """A pattern over what happens: exactly one of the fields is given."""

    @model_validator(mode="after")
    def _one_is_given(self) -> Moment:
        if len(self.kinds) > 1:
            raise ValueError(f"expected exactly one of {', '.join(KINDS)}; got {self.kinds}")
        return self

    @property
    def kind(self) -> str:
        """The field that is given."""
        return self.kinds[0]
