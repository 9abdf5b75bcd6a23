"""What goes wrong on purpose, and canned responses: which calls, how often, and what happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.latency import Latency
from schemas.model import IDENTIFIER, Model
from schemas.spans import SPAN

InjectionKind = Literal[
    "timeout", "schema_mismatch", "outage", "malformed", "content", "rate_limit", "partial", "slow"
]


class CallSelector(Model):
    """Which calls of which tool something applies to."""

    tool: str = Field(default="*", description="A tool's name, or * for all.")
    arguments: Mapping[str, JsonValue] = Field(
        default_factory=dict, description="Arguments a call must have, at least."
    )
    like: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict, description="Globs for arguments as text, such as `ORD-9*`."
    )
    calls: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="Which of the matching calls of a session, from 1; empty for all."
    )
    probability: float = Field(default=1.0, ge=0, le=1, description="Of each selected call.")
    times: int = Field(default=0, ge=0, description="At most so often in a session; 0: no bound.")
    burst: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Once it applies, it does so for this many matching calls in a row.",
    )
    conversations: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="In which conversations, from 1; empty for all."
    )
    after: str = Field(
        default="0s",
        pattern=SPAN,
        description="What has to pass of the session before it may: world time such as 2h, or "
        "3 turns, or 5 calls.",
    )
    until: str | None = Field(
        default=None,
        pattern=SPAN,
        description="What may pass of the session until it is over, likewise.",
    )


class Failure(CallSelector):
    """A failure to inject."""

    id: str = Field(pattern=IDENTIFIER, description="What trajectories call it.")
    kind: InjectionKind = Field(description="What happens to the call.")
    delay_ms: int = Field(default=0, ge=0, le=120_000, description="timeout, slow: how long.")
    latency: Latency | None = Field(
        default=None, description="timeout, slow: how long, drawn for each call instead."
    )
    content: str = Field(default="", description="content: the text that is planted.")
    corpus: str = Field(
        default="", description="content: where texts are taken from when the suite is published."
    )
    contents: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(
        default=(), description="content: texts of which each strike draws one."
    )
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
    def texts(self) -> tuple[str, ...]:
        """What may be planted; empty while `corpus` has not been looked up."""
        return self.contents or ((self.content,) if self.content.strip() else ())

    @property
    def is_required(self) -> bool:
        return self.probability >= 1 if self.required is None else self.required


class ResponseRule(CallSelector):
    """A canned response, given instead of asking the world."""

    id: str = Field(
        default="", pattern=r"^$|" + IDENTIFIER, description="What trajectories call it."
    )
    respond: JsonValue = Field(description="The answer.")
