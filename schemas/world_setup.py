"""What stands behind the simulated tools."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema

from schemas.latency import DURATION
from schemas.model import IDENTIFIER, Model


def moment(text: str) -> datetime:
    """A world's time as it is written, ISO 8601; without an offset it is UTC.

    Raises:
        ValueError: it is none.
    """
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        message = f"expected a time such as 2026-01-15T09:00:00Z, found {text!r}"
        raise ValueError(message) from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def _moment(text: str) -> str:
    moment(text)
    return text


Moment = Annotated[
    str, AfterValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""A time of a world, as scenarios write it."""


class WorldSetup(Model):
    """The world behind the simulated tools."""

    name: str = Field(
        default="", pattern=r"^$|" + IDENTIFIER, description="A world that the tool proxy knows."
    )
    answers: Literal["world", "schema", "model"] = Field(
        default="world",
        description="Who answers for tools that the world has not, or without a world: nobody; "
        "values made up from output schemas; a model.",
    )
    briefing: str = Field(default="", description="model: what stands behind the tools.")
    files: tuple[str, ...] = Field(
        default=(),
        description="Files and folders, by their paths in the suite's folder, that state is read "
        "from when the suite is published.",
    )
    state: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="Merged into the world's initial state (RFC 7386: null removes).",
    )
    now: Moment = Field(
        default="2026-01-15T09:00:00Z", description="The world's clock at the start."
    )
    turn_takes: str = Field(
        default="0s", pattern=DURATION, description="World time that each user turn takes."
    )
    call_takes: str = Field(
        default="0s", pattern=DURATION, description="World time that each tool call takes."
    )
