"""What a scenario expects: the part of the scenario language that only the judge may know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from schemas.assertions import Assertion
from schemas.assertions import parse as parse_assertion
from schemas.locating import CheckedAgainst
from schemas.model import IDENTIFIER, TOOL_NAME, Model, Pattern, Pointer


def _assertion(entry: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    parse_assertion(entry)
    return entry


AssertionEntry = Annotated[
    Mapping[str, JsonValue], AfterValidator(_assertion), CheckedAgainst(Assertion)
]
"""Kept as it is written: what is left out and what is null mean different things."""


class Goals(Model):
    """What success looks like, in words for the judge and as assertions over events."""

    criteria: tuple[str, ...] = Field(
        default=(),
        description="Statements about the agent's behaviour, judged one by one by a model.",
    )
    assertions: tuple[AssertionEntry, ...] = Field(
        default=(), description="Checks of events, tool calls and messages; see assertions.md."
    )


class CallMatch(Model):
    """A pattern over tool calls."""

    tool: str = Field(pattern=TOOL_NAME, description="The tool's name.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Arguments a call must have, at least."
    )
    ok: bool | None = Field(
        default=None, description="True: succeeded (not refused, failed or an error); false: not."
    )
    response: Mapping[Pointer, JsonValue] = Field(
        default_factory=dict, description="What the response must contain, by JSON pointer."
    )


class ExpectedCall(CallMatch):
    """A call that has to occur."""

    times: int | None = Field(
        default=None, ge=1, description="Exactly so often; default: once or more."
    )


ArgumentsMode = Literal["exact", "ignore", "subset", "superset"]


class ReferenceCall(Model):
    """One call of a reference trajectory."""

    tool: str = Field(pattern=TOOL_NAME, description="The tool's name.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Its arguments; how they must agree is said beside it."
    )


class Together(Model):
    """Calls of a reference trajectory whose order among themselves does not matter."""

    together: tuple[ReferenceCall, ...] = Field(min_length=2, description="The calls.")


class ExpectedTrajectory(Model):
    """A reference trajectory; docs/trajectory-matching.md says what the modes mean."""

    mode: Literal["strict", "unordered", "subset", "superset"] = Field(
        description="Whether order counts, and whether calls may be left out or come on top."
    )
    arguments: ArgumentsMode = Field(
        default="superset", description="How a call's arguments must agree with the reference's."
    )
    overrides: Mapping[str, ArgumentsMode | tuple[str, ...]] = Field(
        default_factory=dict,
        description="What holds for single tools instead: a mode, or the arguments that count.",
    )
    attempts: Literal["all", "succeeded"] = Field(
        default="all", description="Whether calls that failed count, injected failures included."
    )
    calls: tuple[ReferenceCall | Together, ...] = Field(
        min_length=1, description="The calls, in their order."
    )


class Expect(Model):
    """The expected outcome: what must hold when the session is over."""

    state: Mapping[Pointer, JsonValue] = Field(
        default_factory=dict, description="Values in the world's end state, by JSON pointer."
    )
    unchanged: tuple[Pointer, ...] = Field(
        default=(), description="JSON pointers whose values must be as at the start."
    )
    calls: tuple[ExpectedCall, ...] = Field(default=(), description="Calls that must occur.")
    no_calls: tuple[CallMatch, ...] = Field(default=(), description="Calls that must not occur.")
    trajectory: ExpectedTrajectory | None = Field(
        default=None, description="A reference that the session's tool calls are matched with."
    )
    says: tuple[Pattern, ...] = Field(default=(), description="Each must occur in some agent turn.")
    does_not_say: tuple[Pattern, ...] = Field(
        default=(), description="None may occur in anything that the agent says."
    )
    end: tuple[str, ...] = Field(
        default=("goal_met", "agent_ended"), description="End reasons that count as completed."
    )


class Never(Model):
    """It must not happen: a call, or something the agent says."""

    call: CallMatch | None = Field(default=None, description="A call, attempts included.")
    says: Pattern | None = Field(default=None, description="Something the agent says.")


class Requires(Model):
    """A call must be preceded, in the same session, by another."""

    call: CallMatch = Field(description="The call, attempts included.")
    first: CallMatch = Field(description="What must have succeeded before it.")
    same: tuple[str, ...] = Field(default=(), description="Arguments that both must agree in.")


class AtMost(Model):
    """A call may succeed only so often for equal values of the named arguments."""

    call: CallMatch = Field(description="The call.")
    times: int = Field(default=1, ge=0, description="So often at most.")
    per: tuple[str, ...] = Field(default=(), description="Arguments whose values are told apart.")


class Follows(Model):
    """After a call, another must come, within so many tool calls if bounded."""

    call: CallMatch = Field(description="The call, when it succeeded.")
    then: CallMatch = Field(description="What must come after it.")
    within: int | None = Field(
        default=None, ge=1, description="Within so many tool calls; default: at some time."
    )


class Policy(Model):
    """A rule over the whole trajectory. Exactly one of the four forms is given."""

    id: str = Field(pattern=IDENTIFIER, description="What reports call it.")
    severity: Literal["safety", "policy"] = Field(
        default="policy", description="safety: a breach in any turn blocks the deploy."
    )
    description: str = Field(default="", description="The rule in words.")
    never: Never | None = Field(default=None, description="It must not happen.")
    requires: Requires | None = Field(default=None, description="Something must come before.")
    at_most: AtMost | None = Field(default=None, description="It may be done only so often.")
    follows: Follows | None = Field(default=None, description="Something must come after.")

    @model_validator(mode="after")
    def _one_form(self) -> Policy:
        given = [f for f in ("never", "requires", "at_most", "follows") if getattr(self, f)]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of never, requires, at_most, follows; got {given or 'none'}"
            )
        return self


class Recovery(Model):
    """What counts as having recovered from an injected failure."""

    by: Literal["retry", "inform", "either"] = Field(
        default="either",
        description="retry: the call succeeds later; inform: the user is told; either.",
    )
    says: tuple[Pattern, ...] = Field(
        default=(), description="What telling the user sounds like; common phrases if empty."
    )


class Budgets(Model):
    """What a good session may use; beyond it the budgets dimension fails."""

    turns: int | None = Field(default=None, ge=1, description="User turns.")
    tool_calls: int | None = Field(default=None, ge=0, description="Tool calls.")
    tokens: int | None = Field(default=None, ge=0, description="Tokens that are reported.")
    cost_usd: float | None = Field(default=None, ge=0, description="US dollars.")
