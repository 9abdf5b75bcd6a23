"""What stands behind the simulated tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from schemas.latency import DURATION
from schemas.model import IDENTIFIER, Model


class WorldSetup(Model):
    """The world behind the simulated tools."""

    name: str = Field(
        default="", pattern=r"^$|" + IDENTIFIER, description="A world that the tool proxy knows."
    )
    answers: Literal["world", "schema", "model"] = Field(
        default="world",
        description="Who answers: the world; values made up from output schemas; a model.",
    )
    briefing: str = Field(default="", description="model: what stands behind the tools.")
    files: tuple[str, ...] = Field(
        default=(), description="Files of the suite that state is read from when it is published."
    )
    state: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="Merged into the world's initial state (RFC 7386: null removes).",
    )
    now: str = Field(default="2026-01-15T09:00:00Z", description="The world's clock at the start.")
    turn_takes: str = Field(
        default="0s", pattern=DURATION, description="World time that each user turn takes."
    )
    call_takes: str = Field(
        default="0s", pattern=DURATION, description="World time that each tool call takes."
    )
