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
    model_validator,
)

from schemas.canaries import NAME as CANARY_NAME
from schemas.canaries import Looks
from schemas.coherence import coherent
from schemas.expectations import (
    Actors,
    Budgets,
    Expect,
    Goals,
    Recovery,
)
from schemas.faults import Failure, ResponseRule
from schemas.model import IDENTIFIER, Model, Scalar
from schemas.policies import Policy
from schemas.user import Conversation, User
from schemas.world_setup import Moment, WorldSetup


class Category(StrEnum):
    """The five kinds of scenario that a suite has to cover."""

    HAPPY = "happy"
    FAILURE_INJECTION = "failure-injection"
    ADVERSARIAL = "adversarial"
    LOAD = "load"
    LONG_HORIZON = "long-horizon"


class Setup(Model):
    """The state the agent starts in."""

    initial_slots: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="What the agent knows before the first user turn."
    )


class SessionLimits(Model):
    """The bounds of a session; reaching one ends it."""

    turns: int = Field(default=12, ge=1, le=500, description="User turns over all conversations.")
    tool_calls: int = Field(default=40, ge=0, le=10_000, description="Tool calls, likewise.")
    wall_s: float = Field(default=600, gt=0, le=7200, description="Seconds from the start.")
    tokens: int = Field(default=0, ge=0, description="Tokens that are reported; 0: no bound.")
    cost_usd: float = Field(default=0, ge=0, description="US dollars; 0: no bound.")


class Variation(Model):
    """Another way for a session to begin. What must hold at the end holds for all of them."""

    name: str = Field(pattern=IDENTIFIER, description="What trajectories call it.")
    weight: float = Field(default=1.0, gt=0, description="How often it is drawn, relatively.")
    facts: Mapping[str, Scalar] = Field(
        default_factory=dict, description="Values of facts that the user then knows instead."
    )
    initial_slots: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Merged into what the agent starts with."
    )
    state: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Merged into the world's state."
    )
    now: Moment | None = Field(default=None, description="The world's clock at the start.")


class RateStep(Model):
    """A rate that holds for some time."""

    per_s: float = Field(ge=0, le=1000, description="Sessions a second; 0 is a pause.")
    for_s: float = Field(gt=0, le=3600, description="For so many seconds.")


class Arrival(Model):
    """Open loop: sessions arrive by the clock, whether or not others are done."""

    per_s: float = Field(gt=0, le=1000, description="Sessions a second, after ramp and steps.")
    ramp_s: float = Field(
        default=0, ge=0, le=3600, description="Seconds in which the rate rises from 0 to it."
    )
    steps: tuple[RateStep, ...] = Field(
        default=(), max_length=100, description="Rates before it, one after the other."
    )
    burst: int = Field(
        default=1, ge=1, le=10_000, description="So many sessions arrive at once; the rate stays."
    )
    spacing: Literal["poisson", "even"] = Field(
        default="poisson", description="Random, as independent users come, or all alike."
    )

    @model_validator(mode="after")
    def _ramp_or_steps(self) -> Arrival:
        if self.ramp_s and self.steps:
            raise ValueError("give `ramp_s` or `steps`, not both")
        return self


class Objectives(Model):
    """Service-level objectives of a load scenario; a breach fails the run."""

    turn_p50_ms: int | None = Field(default=None, ge=1, description="Median of an agent turn.")
    turn_p95_ms: int | None = Field(default=None, ge=1, description="95th percentile.")
    turn_p99_ms: int | None = Field(default=None, ge=1, description="99th percentile.")
    error_rate: float | None = Field(
        default=None, ge=0, le=1, description="Share of agent turns that fail or time out."
    )
    completion_rate: float | None = Field(
        default=None, ge=0, le=1, description="Share of sessions that must pass."
    )
    sessions_per_s: float | None = Field(
        default=None, gt=0, description="Sessions that must get done a second."
    )


class Load(Model):
    """Many sessions at once: closed loop by `concurrency`, open loop by `arrival`."""

    sessions: int = Field(default=20, ge=1, le=100_000, description="Sessions per trial.")
    concurrency: int = Field(default=10, ge=1, le=10_000, description="Of them at once.")
    arrival: Arrival | None = Field(
        default=None, description="How sessions arrive; `concurrency` is then their bound."
    )
    objectives: Objectives | None = Field(default=None, description="What must hold under load.")


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
    labels: Mapping[str, str] = Field(
        default_factory=dict, description="Free labels, such as a dataset's columns."
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
    variations: tuple[Variation, ...] = Field(
        default=(), description="Other ways to begin; one is drawn for each session."
    )
    canaries: Mapping[Annotated[str, Field(pattern=CANARY_NAME)], Looks] = Field(
        default_factory=dict,
        description="Values of each session's own that the agent must not pass on, by what they "
        "look like; planted where a text says {canary.NAME}.",
    )
    failure_profile: str = Field(
        default="", description="One of the suite's `failure_profiles`, which is added."
    )
    profile_multiplier: float = Field(
        default=1.0, ge=0, le=1000, description="Factor on the rates of that profile."
    )
    failures: tuple[Failure, ...] = Field(
        default=(), description="What goes wrong; the first that applies to a call strikes."
    )
    rules: tuple[ResponseRule, ...] = Field(
        default=(), description="Canned responses; the first that applies answers."
    )
    expect: Expect = Field(default=Expect(), description="What must hold at the end.")
    policies: tuple[Policy, ...] = Field(default=(), description="What must hold all the way.")
    actors: Actors = Field(
        default=Actors(), description="Sub-agents of a multi-agent system: who may do what."
    )
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
    version: str = Field(pattern=r"\S", description="Raised with every change.")
    owner: str = Field(pattern=r"\S", description="Who keeps the suite in step with production.")
    description: str = Field(default="", description="What the suite is for.")
    failure_profiles: Mapping[str, tuple[Failure, ...]] = Field(
        default_factory=dict, description="Named lists of failures, such as production's rates."
    )
    defaults: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Scenario fields that every scenario starts from."
    )
