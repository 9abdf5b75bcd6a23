"""Policies: rules over a whole trajectory. docs/policies.md defines what each form means."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.model import IDENTIFIER, Model
from schemas.moments import CallMatch, CustomMatch, Moment, Moments, SlotMatch

FORMS = ("never", "always", "requires", "at_most", "follows")


Calls = Annotated[int, Field(ge=1)]


class Within(Model):
    """How far apart two things may be. All that is given must hold."""

    calls: int | None = Field(default=None, ge=0, description="Tool calls, of whatever tool.")
    turns: int | None = Field(default=None, ge=0, description="User turns; 0: in the same one.")
    seconds: int | None = Field(default=None, ge=0, description="Seconds of the world's clock.")

    @model_validator(mode="after")
    def _bounds_something(self) -> Within:
        if self.calls is None and self.turns is None and self.seconds is None:
            raise ValueError("expected calls, turns or seconds; got none")
        return self


class Never(Moments):
    """It must not happen; several fields are several things that must not."""


class Always(Moment):
    """Whatever is of its kind must fit: each call of the tool, each answer, each setting of the
    slot, each hand-off by that sub-agent, each custom event of that name."""

    @model_validator(mode="after")
    def _asks_for_more_than_the_kind(self) -> Always:
        call, slot, handoff, custom = self.call, self.slot_was_set, self.handoff, self.custom
        if call is not None:
            more = bool(call.arguments or call.where or call.response or call.actor)
            wanted, asked = "arguments, where, ok, response or actor", more or call.ok is not None
        elif slot is not None:
            wanted, asked = "the value", isinstance(slot, SlotMatch) and slot.value is not None
        elif handoff is not None:
            wanted, asked = "both by and to", bool(handoff.by and handoff.to)
        elif custom is not None:
            wanted, asked = "data", isinstance(custom, CustomMatch) and bool(custom.data)
        else:
            wanted = "call, says, slot_was_set, handoff or custom"
            asked = self.says is not None
        if not asked:
            raise ValueError(f"expected {wanted}: what must always be so of it")
        return self


class Requires(Moment):
    """Before it, something else must have happened in the same session."""

    first: CallMatch | Moment = Field(description="What must come before; a call, when done.")
    same: tuple[str, ...] = Field(default=(), description="Values that both must agree in.")
    within: Calls | Within | None = Field(
        default=None, description="How long before at most; a number counts tool calls."
    )


class AtMost(Moment):
    """It may happen only so often, a call when it was done."""

    times: int = Field(default=1, ge=0, description="So often at most.")
    per: tuple[str, ...] = Field(default=(), description="Values that are told apart.")


class Follows(Moment):
    """After it, something else must come, within a bound if one is given."""

    then: CallMatch | Moment = Field(description="What must come after it; an attempt will do.")
    same: tuple[str, ...] = Field(default=(), description="Values that both must agree in.")
    within: Calls | Within | None = Field(
        default=None, description="How soon; a number counts tool calls. Default: at some time."
    )


class Unless(Moment):
    """What excuses a breach, when it has happened."""

    same: tuple[str, ...] = Field(default=(), description="Values that both must agree in.")


class Policy(Model):
    """A rule over the whole trajectory. Exactly one of the five forms is given."""

    id: str = Field(pattern=IDENTIFIER, description="What reports call it.")
    severity: Literal["safety", "policy"] = Field(
        default="policy", description="safety: a breach in any turn blocks the deploy."
    )
    description: str = Field(default="", description="The rule in words.")
    never: Never | None = Field(default=None, description="It must not happen.")
    always: Always | None = Field(default=None, description="It must always be so.")
    requires: Requires | None = Field(default=None, description="Something must come before.")
    at_most: AtMost | None = Field(default=None, description="It may be done only so often.")
    follows: Follows | None = Field(default=None, description="Something must come after.")
    after: Moment | None = Field(
        default=None, description="The rule holds only once this has happened."
    )
    until: Moment | None = Field(
        default=None, description="It no longer holds once this has happened."
    )
    unless: Unless | None = Field(default=None, description="What excuses a breach.")

    @property
    def form(self) -> str:
        """The form that is given."""
        return next(form for form in FORMS if getattr(self, form))

    @model_validator(mode="after")
    def _one_form(self) -> Policy:
        given = [form for form in FORMS if getattr(self, form)]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(FORMS)}; got {given or 'none'}")
        return self
