"""The simulated user: who it is, what it knows, and what it wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from schemas.latency import DURATION, Latency
from schemas.model import TOOL_NAME, Model, Pattern, Scalar


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


class UserTool(Model):
    """A tool of the world that the user, and not the agent, has; its name alone will do."""

    name: str = Field(pattern=TOOL_NAME, description="One of the world's tools for users.")
    description: str = Field(default="", description="What it does, for a model that plays.")
    input_schema: Mapping[str, JsonValue] = Field(
        default_factory=lambda: {"type": "object"},
        description="JSON Schema of its arguments, for a model that plays.",
    )


class UserAction(Model):
    """Something the user does with a tool of their own when the agent asks for it."""

    when: tuple[Pattern, ...] = Field(
        min_length=1, description="What the agent says; any one will do."
    )
    tool: str = Field(pattern=TOOL_NAME, description="One of `user.tools`.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Its arguments; {fact} names in texts are filled in."
    )
    say: tuple[str, ...] = Field(
        default=(), description="Ways to report it, with {response}; generic ones if empty."
    )


class RecordedLine(Model):
    """One line of a recorded conversation."""

    who: Literal["user", "agent"] = Field(description="Whose line it is.")
    text: str = Field(description="What was said.")
    ending: Literal["goal_met", "gave_up", "conversation_over"] | None = Field(
        default=None, description="The user left with this line: content, not, or till the next."
    )

    @model_validator(mode="after")
    def _says_or_ends(self) -> RecordedLine:
        if self.ending is not None and self.who != "user":
            raise ValueError("only a line of the user's can end a conversation")
        if self.ending is None and not self.text.strip():
            raise ValueError("empty, although nobody leaves with it")
        return self


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
        pattern=DURATION,
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
    think: Latency | None = Field(
        default=None, description="That pause, drawn for each turn instead."
    )
    tools: tuple[UserTool, ...] = Field(
        default=(), description="Tools of the world that the user, and not the agent, has."
    )
    actions: tuple[UserAction, ...] = Field(
        default=(), description="What the user does with them; a model decides for itself."
    )
    recording: tuple[RecordedLine, ...] = Field(
        default=(), description="A recorded conversation, said again for as long as it fits."
    )
    pushes_from: str = Field(
        default="", description="A corpus that `pushes` are added from when it is published."
    )

    @field_validator("personas", mode="before")
    @classmethod
    def _named_personas(cls, value: Any) -> Any:
        styles = Persona.model_fields["style"].annotation
        allowed = getattr(styles, "__args__", ())
        if isinstance(value, list):
            return [{"name": item, "style": item} if item in allowed else item for item in value]
        return value

    @field_validator("tools", mode="before")
    @classmethod
    def _named_tools(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [{"name": item} if isinstance(item, str) else item for item in value]
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
