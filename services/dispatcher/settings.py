"""The dispatcher's settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from services.runtime.settings import TokenSettings


class DispatcherSettings(TokenSettings):
    """Of both its halves: run coordinator and turn dispatcher."""

    service: ClassVar[str] = "dispatcher"

    concurrent_turns: int = Field(default=500, ge=1, description="Turns at agents at once.")
    admission_batch: int = Field(default=50, ge=1, description="Sessions started in one append.")
    status_interval_s: float = Field(default=1.0, gt=0, description="Between progress reports.")
    lookup_s: float = Field(
        default=10.0, gt=0, description="To read suites and agents to their ends for a request."
    )
    ping_timeout_s: float = Field(default=10.0, gt=0, description="For an agent to answer a ping.")
    proxy_wait_s: float = Field(
        default=30.0, gt=0, description="How long a turn waits for a tool proxy to own its session."
    )
    # As the user simulator and the judge are set: the coordinator records what a run was pinned to.
    user_simulator: Literal["agenda", "llm"] = "agenda"
    user_model: str = ""
    user_model_temperature: float = 0.7
    judge_model: str = ""
