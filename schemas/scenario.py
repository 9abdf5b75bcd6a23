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

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
TOOL_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}$"


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


class Fact(Model):
    """Something the user knows. Said when asked for, or at once if the user volunteers it."""

    value: Scalar
    ask: tuple[Pattern, ...] = Field(
        default=(), description="How agents ask for it; the fact's name is always understood."
    )
    say: tuple[str, ...] = Field(
        default=(), description="Ways to say it, with {value}; generic ones if empty."
    )


class Persona(Model):
    """How a user pursues a goal."""

    name: str = Field(min_length=1)
    style: Literal["plain", "terse", "rambling", "hostile", "confused"] = "plain"
    patience: int = Field(
        default=4, ge=1, le=50, description="Agent turns without progress before giving up."
    )
    description: str = ""
    weight: float = Field(default=1.0, gt=0)


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

    goals: tuple[UserGoal, ...] = Field(min_length=1)
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

    personas: tuple[Persona, ...] = (Persona(name="plain"),)
    facts: Mapping[str, Fact] = Field(default_factory=dict)
    goals: tuple[UserGoal, ...] = ()
    pushes: tuple[str, ...] = ()
    consents: bool = True
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

    initial_slots: Mapping[str, JsonValue] = Field(default_factory=dict)


class Goals(Model):
    """What success looks like, in words for the judge and as assertions over events."""

    criteria: tuple[str, ...] = ()
    assertions: tuple[Mapping[str, JsonValue] | str, ...] = ()


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

    id: str = Field(pattern=IDENTIFIER)
    kind: InjectionKind
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

    id: str = Field(default="", pattern=r"^$|" + IDENTIFIER)
    respond: JsonValue


class WorldSetup(Model):
    """The world behind the simulated tools."""

    name: str = Field(pattern=IDENTIFIER)
    state: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="Merged into the world's initial state (RFC 7386: null removes).",
    )
    now: str = Field(default="2026-01-15T09:00:00Z", description="The world's clock at the start.")


class CallMatch(Model):
    """A pattern over tool calls."""

    tool: str = Field(pattern=TOOL_NAME)
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)
    ok: bool | None = Field(
        default=None, description="True: succeeded (not refused, failed or an error); false: not."
    )
    response: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="What the response must contain, by JSON pointer."
    )


class ExpectedCall(CallMatch):
    """A call that has to occur."""

    times: int | None = Field(
        default=None, ge=1, description="Exactly so often; default: once or more."
    )


class Expect(Model):
    """The expected outcome: what must hold when the session is over."""

    state: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Values in the world's end state, by JSON pointer."
    )
    unchanged: tuple[str, ...] = Field(
        default=(), description="JSON pointers whose values must be as at the start."
    )
    calls: tuple[ExpectedCall, ...] = ()
    no_calls: tuple[CallMatch, ...] = ()
    says: tuple[Pattern, ...] = Field(default=(), description="Each must occur in some agent turn.")
    does_not_say: tuple[Pattern, ...] = ()
    end: tuple[str, ...] = Field(
        default=("goal_met", "agent_ended"), description="End reasons that count as completed."
    )

    @field_validator("state", "unchanged")
    @classmethod
    def _pointers(cls, value: Any) -> Any:
        for pointer in value:
            if pointer and not pointer.startswith("/"):
                raise ValueError(f"{pointer!r} is not a JSON pointer; write /{pointer}")
        return value


class Never(Model):
    """It must not happen: a call, or something the agent says."""

    call: CallMatch | None = None
    says: Pattern | None = None


class Requires(Model):
    """A call must be preceded, in the same session, by another."""

    call: CallMatch
    first: CallMatch
    same: tuple[str, ...] = Field(default=(), description="Arguments that both must agree in.")


class AtMost(Model):
    """A call may succeed only so often for equal values of the named arguments."""

    call: CallMatch
    times: int = Field(default=1, ge=0)
    per: tuple[str, ...] = ()


class Follows(Model):
    """After a call, another must come, within so many tool calls if bounded."""

    call: CallMatch
    then: CallMatch
    within: int | None = Field(default=None, ge=1)


class Policy(Model):
    """A rule over the whole trajectory. Exactly one of the four forms is given."""

    id: str = Field(pattern=IDENTIFIER)
    severity: Literal["safety", "policy"] = "policy"
    description: str = ""
    never: Never | None = None
    requires: Requires | None = None
    at_most: AtMost | None = None
    follows: Follows | None = None

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

    turns: int | None = Field(default=None, ge=1)
    tool_calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost_usd: float | None = Field(default=None, ge=0)


class SessionLimits(Model):
    """The bounds of a session; reaching one ends it."""

    turns: int = Field(default=12, ge=1, le=500)
    tool_calls: int = Field(default=40, ge=0, le=10_000)
    wall_s: float = Field(default=600, gt=0, le=7200)
    tokens: int = Field(default=0, ge=0)
    cost_usd: float = Field(default=0, ge=0)


class Load(Model):
    """Many sessions at once, closed loop."""

    sessions: int = Field(default=20, ge=1, le=100_000, description="Sessions per trial.")
    concurrency: int = Field(default=10, ge=1, le=10_000, description="Of them at once.")


class Scenario(Model):
    """One test case for an agent."""

    id: str = Field(default="", pattern=r"^$|" + IDENTIFIER)
    name: str = Field(min_length=1)
    category: Category = Category.HAPPY
    version: str = "1"
    owner: str = ""
    origin: str = "written"
    simulation_context: str = ""
    setup: Setup = Setup()
    goals: Goals = Goals()
    user: User | None = None
    conversations: tuple[Conversation, ...] = ()
    world: WorldSetup | None = None
    failures: tuple[Failure, ...] = ()
    rules: tuple[ResponseRule, ...] = ()
    expect: Expect = Expect()
    policies: tuple[Policy, ...] = ()
    recovery: Recovery = Recovery()
    budgets: Budgets = Budgets()
    limits: SessionLimits = SessionLimits()
    load: Load | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Scenario:
        if self.category is Category.LOAD and self.load is None:
            raise ValueError("category load needs `load: {sessions, concurrency}`")
        if self.category is Category.LONG_HORIZON and len(self.conversations) < 2:
            raise ValueError("category long-horizon needs at least two `conversations`")
        if self.category is Category.FAILURE_INJECTION and not self.failures:
            raise ValueError("category failure-injection needs `failures`")
        if self.conversations and self.user is not None and self.user.goals:
            raise ValueError("write the goals in `user.goals` or in `conversations`, not in both")
        for what, ids in (
            ("failures", [f.id for f in self.failures]),
            ("policies", [p.id for p in self.policies]),
        ):
            repeated = sorted({i for i in ids if ids.count(i) > 1})
            if repeated:
                raise ValueError(f"{what}: repeated id {', '.join(repeated)}")
        return self

    def all_conversations(self) -> tuple[Conversation, ...]:
        """The conversations, whichever way they were written; empty if only in words."""
        if self.conversations or self.user is None or not self.user.goals:
            return self.conversations
        user = self.user
        return (Conversation(goals=user.goals, pushes=user.pushes, consents=user.consents),)


class ScenarioFile(Model):
    """A scenario file has one key."""

    scenario: Scenario


class SuiteFile(Model):
    """A suite's `suite.yaml`."""

    name: str = Field(pattern=IDENTIFIER)
    version: str = Field(min_length=1)
    owner: str = Field(min_length=1, description="Who keeps the suite in step with production.")
    description: str = ""
    defaults: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Scenario fields that every scenario starts from."
    )
