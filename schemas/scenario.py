"""The scenario language: what people write, one YAML file a scenario.

The core is `scenario: {name, simulation_context, setup, goals}`; the other fields say who the
user is, what the tools do, what must come out, and what may never happen. A suite is a folder
with a `suite.yaml` and scenario files; the suite's `defaults` apply to every scenario that does
not say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from schemas.assertions import Assertion
from schemas.assertions import parse as parse_assertion
from schemas.coherence import coherent
from schemas.locating import CheckedAgainst

IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
TOOL_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}$"
POINTER = r"^(/([^~/]|~[01])*)*$"


class Category(StrEnum):
    """The five kinds of scenario that a suite has to cover."""

    HAPPY = "happy"
    FAILURE_INJECTION = "failure-injection"
    ADVERSARIAL = "adversarial"
    LOAD = "load"
    LONG_HORIZON = "long-horizon"


class Model(BaseModel):
    """Frozen, and strict about unknown fields: a misspelt key is an error, not a no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


Scalar = str | int | float | bool


class Pattern(str):
    """A regular expression, searched without regard to case."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda value: cls(_regex(value)), core_schema.str_schema(min_length=1)
        )

    def found_in(self, text: str) -> bool:
        return re.search(self, text, re.IGNORECASE) is not None


def _pointer(value: str) -> str:
    if re.fullmatch(POINTER, value):
        return value
    hint = "after ~ comes 0 or 1" if value.startswith("/") else f"write /{value}"
    raise ValueError(f"expected a JSON pointer, found {value!r}; {hint}")


Pointer = Annotated[
    str, AfterValidator(_pointer), WithJsonSchema({"type": "string", "pattern": POINTER})
]
"""A place in a JSON document, as RFC 6901 writes it."""


class Fact(Model):
    """Something the user knows. Said when asked for, or at once if the user volunteers it."""

    value: Scalar = Field(description="What the user says when asked.")
    ask: tuple[Pattern, ...] = Field(
        default=(), description="How agents ask for it; the fact's name is always understood."
    )
    say: tuple[str, ...] = Field(
        default=(), description="Ways to say it, with {value}; generic ones if empty."
    )


class Persona(Model):
    """How a user pursues a goal."""

    name: str = Field(min_length=1, description="What reports call it.")
    style: Literal["plain", "terse", "rambling", "hostile", "confused"] = Field(
        default="plain", description="Which phrases this user draws from."
    )
    patience: int = Field(
        default=4, ge=1, le=50, description="Agent turns without progress before giving up."
    )
    volunteers: float = Field(
        default=0.0, ge=0, le=1,
        description="The share of the facts that are told unasked, in a conversation's first turn.",
    )  # fmt: skip
    description: str = Field(default="", description="Who this is, for a model that plays it.")
    weight: float = Field(default=1.0, gt=0, description="How often it is drawn, relatively.")


class UserGoal(Model):
    """One thing the user wants, and how the user knows that it was done."""

    say: tuple[str, ...] = Field(
        min_length=1, description="Ways to ask for it; {fact} names are filled in."
    )
    done_when: tuple[Pattern, ...] = Field(
        min_length=1, description="What the user must hear from the agent; any one will do."
    )


class Conversation(Model):
    """One conversation of a session: its goals in the order in which they come up."""

    goals: tuple[UserGoal, ...] = Field(
        min_length=1, description="What the user wants, in this order."
    )
    pushes: tuple[str, ...] = Field(
        default=(), description="What the user says, one after the other, when refused."
    )
    after: str = Field(
        default="0s",
        pattern=r"^\d+(s|m|h|d)$",
        description="Time that passes in the world before it, such as 3d.",
    )
    consents: bool = Field(default=True, description="The answer to 'shall I go ahead?'.")


class User(Model):
    """The simulated user: persona, facts known, and what is wanted."""

    personas: tuple[Persona, ...] = Field(
        default=(Persona(name="plain"),),
        min_length=1,
        description="One is drawn for each session; the name of a style stands for a plain one.",
    )
    facts: Mapping[str, Fact] = Field(
        default_factory=dict, description="What the user knows, by name; a value alone will do."
    )
    goals: tuple[UserGoal, ...] = Field(
        default=(), description="What the user wants, where there is one conversation."
    )
    pushes: tuple[str, ...] = Field(
        default=(), description="What the user says, one after the other, when refused."
    )
    consents: bool = Field(default=True, description="The answer to 'shall I go ahead?'.")
    think_ms: int = Field(
        default=0, ge=0, le=600_000, description="Pause before each user turn, as people make."
    )

    @field_validator("personas", mode="before")
    @classmethod
    def _named_personas(cls, value: Any) -> Any:
        styles = Persona.model_fields["style"].annotation
        allowed = getattr(styles, "__args__", ())
        if isinstance(value, list):
            return [{"name": item, "style": item} if item in allowed else item for item in value]
        return value

    @field_validator("facts", mode="before")
    @classmethod
    def _plain_facts(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: fact if isinstance(fact, dict) else {"value": fact}
                for name, fact in value.items()
            }
        return value


class Setup(Model):
    """The state the agent starts in."""

    initial_slots: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="What the agent knows before the first user turn."
    )


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


InjectionKind = Literal[
    "timeout", "schema_mismatch", "outage", "malformed", "content", "rate_limit", "partial", "slow"
]


class CallSelector(Model):
    """Which calls of which tool something applies to."""

    tool: str = Field(default="*", description="A tool's name, or * for all.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Arguments a call must have, at least."
    )
    calls: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="Which of the matching calls of a session, from 1; empty for all."
    )
    probability: float = Field(default=1.0, ge=0, le=1, description="Of each selected call.")
    times: int = Field(default=0, ge=0, description="At most so often in a session; 0: no bound.")


class Failure(CallSelector):
    """A failure to inject."""

    id: str = Field(pattern=IDENTIFIER, description="What trajectories call it.")
    kind: InjectionKind = Field(description="What happens to the call.")
    delay_ms: int = Field(default=0, ge=0, le=120_000, description="timeout, slow: how long.")
    content: str = Field(default="", description="content: the text that is planted.")
    field: str = Field(
        default="", description="content, partial: the response's field it is about."
    )
    message: str = Field(default="", description="The error text the agent is given.")
    retry_after_s: int = Field(default=1, ge=0, description="rate_limit: what the agent is told.")
    required: bool | None = Field(
        default=None,
        description="A session in which it never struck is invalid. Default: unless random.",
    )

    @property
    def is_required(self) -> bool:
        return self.probability >= 1 if self.required is None else self.required


class ResponseRule(CallSelector):
    """A canned response, given instead of asking the world."""

    id: str = Field(
        default="", pattern=r"^$|" + IDENTIFIER, description="What trajectories call it."
    )
    respond: JsonValue = Field(description="The answer.")


class WorldSetup(Model):
    """The world behind the simulated tools."""

    name: str = Field(pattern=IDENTIFIER, description="A world that the tool proxy knows.")
    state: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="Merged into the world's initial state (RFC 7386: null removes).",
    )
    now: str = Field(default="2026-01-15T09:00:00Z", description="The world's clock at the start.")


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


class SessionLimits(Model):
    """The bounds of a session; reaching one ends it."""

    turns: int = Field(default=12, ge=1, le=500, description="User turns over all conversations.")
    tool_calls: int = Field(default=40, ge=0, le=10_000, description="Tool calls, likewise.")
    wall_s: float = Field(default=600, gt=0, le=7200, description="Seconds from the start.")
    tokens: int = Field(default=0, ge=0, description="Tokens that are reported; 0: no bound.")
    cost_usd: float = Field(default=0, ge=0, description="US dollars; 0: no bound.")


class Load(Model):
    """Many sessions at once, closed loop."""

    sessions: int = Field(default=20, ge=1, le=100_000, description="Sessions per trial.")
    concurrency: int = Field(default=10, ge=1, le=10_000, description="Of them at once.")


class Scenario(Model):
    """One test case for an agent."""

    id: str = Field(
        default="", pattern=r"^$|" + IDENTIFIER, description="Unique in its suite; the file's stem."
    )
    name: str = Field(min_length=1, description="What it shows, in a sentence.")
    category: Category = Field(
        default=Category.HAPPY, description="What kind of risk it stands for."
    )
    version: str = Field(default="1", description="Raised when what it asks for changes.")
    owner: str = Field(default="", description="Who keeps it true; the suite's owner if empty.")
    origin: str = Field(
        default="written", description="Where it comes from, such as written or an incident's id."
    )
    simulation_context: str = Field(
        default="", description="The user's briefing in words. The user is told all of it."
    )
    setup: Setup = Field(default=Setup(), description="What the agent starts with.")
    goals: Goals = Field(default=Goals(), description="Success, in words and as assertions.")
    user: User | None = Field(default=None, description="The simulated user.")
    conversations: tuple[Conversation, ...] = Field(
        default=(), description="The conversations of one session, where there are several."
    )
    world: WorldSetup | None = Field(default=None, description="The world behind the tools.")
    failures: tuple[Failure, ...] = Field(
        default=(), description="What goes wrong; the first that applies to a call strikes."
    )
    rules: tuple[ResponseRule, ...] = Field(
        default=(), description="Canned responses; the first that applies answers."
    )
    expect: Expect = Field(default=Expect(), description="What must hold at the end.")
    policies: tuple[Policy, ...] = Field(default=(), description="What must hold all the way.")
    recovery: Recovery = Field(
        default=Recovery(), description="What counts as having recovered from a failure."
    )
    budgets: Budgets = Field(default=Budgets(), description="What a good session may use.")
    limits: SessionLimits = Field(
        default=SessionLimits(), description="Bounds that end a session when reached."
    )
    load: Load | None = Field(default=None, description="How many sessions at once.")

    @model_validator(mode="wrap")
    @classmethod
    def _coherent(cls, data: Any, handler: ModelWrapValidatorHandler[Scenario]) -> Scenario:
        return coherent(data, handler)

    def all_conversations(self) -> tuple[Conversation, ...]:
        """The conversations, whichever way they were written; empty if only in words."""
        if self.conversations or self.user is None or not self.user.goals:
            return self.conversations
        user = self.user
        return (Conversation(goals=user.goals, pushes=user.pushes, consents=user.consents),)


class ScenarioFile(Model):
    """A scenario file has one key."""

    scenario: Scenario = Field(description="The scenario.")


class SuiteFile(Model):
    """A suite's `suite.yaml`."""

    name: str = Field(pattern=IDENTIFIER, description="What run requests call it.")
    version: str = Field(min_length=1, description="Raised with every change.")
    owner: str = Field(min_length=1, description="Who keeps the suite in step with production.")
    description: str = Field(default="", description="What the suite is for.")
    defaults: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Scenario fields that every scenario starts from."
    )
