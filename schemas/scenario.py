"""The scenario language: what people write, one YAML file a scenario.

The core is `scenario: {name, simulation_context, setup, goals}`; the other fields say who the
user is, what the tools do, what must come out, and what may never happen. A suite is a folder
with a `suite.yaml` and scenario files; the suite's `defaults` apply to every scenario that does
not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    field_validator,
    model_validator,
)

from schemas.coherence import coherent
from schemas.expectations import (
    Budgets,
    Expect,
    Goals,
    Policy,
    Recovery,
)
from schemas.model import IDENTIFIER, Model, Pattern, Scalar


class Category(StrEnum):
    """The five kinds of scenario that a suite has to cover."""

    HAPPY = "happy"
    FAILURE_INJECTION = "failure-injection"
    ADVERSARIAL = "adversarial"
    LOAD = "load"
    LONG_HORIZON = "long-horizon"


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
