"""What a scenario expects: the part of the scenario language that only the judge may know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from schemas.assertions import Assertion
from schemas.assertions import parse as parse_assertion
from schemas.locating import CheckedAgainst
from schemas.model import TOOL_NAME, Model, Pattern, Pointer
from schemas.moments import Actor, CallMatch, HandoffMatch


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


class Tau2Task(Model):
    """A task of the benchmark tau2; see docs/tau2.md."""

    domain: Literal["airline", "mock", "retail", "telecom"] = Field(description="Its domain.")
    task: str = Field(min_length=1, description="Its id in that domain.")


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
    tau2: Tau2Task | None = Field(
        default=None, description="A task of tau2's, whose reward must be 1."
    )
    end: tuple[str, ...] = Field(
        default=("goal_met", "agent_ended"), description="End reasons that count as completed."
    )


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


class Role(Model):
    """What one sub-agent is for. What is not said is not restricted."""

    tools: tuple[str, ...] | None = Field(
        default=None, description="The tools that it may call; default: any."
    )
    hands_to: tuple[Actor, ...] | None = Field(
        default=None, description="To whom it may hand over; default: to anybody."
    )


class Actors(Model):
    """The sub-agents of a multi-agent system, and how they are to work together."""

    roles: Mapping[Actor, Role] = Field(
        default_factory=dict, description="By the sub-agent's call path, or the end of it."
    )
    others: bool = Field(default=True, description="Whether sub-agents without a role may act.")
    handoffs: tuple[HandoffMatch, ...] = Field(
        default=(), description="Hand-offs that must occur in this order, others in between."
    )
