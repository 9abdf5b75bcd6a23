"""What the pipelines need to know."""

from __future__ import annotations

import shlex
from typing import ClassVar

from pydantic import Field, SecretStr

from services.runtime.settings import Settings


class PipelineSettings(Settings):
    """Settings of the runner and of the jobs it starts."""

    service: ClassVar[str] = "pipelines"

    store: SecretStr = Field(
        default=SecretStr(""),
        description="URL of the store; empty for none: verdicts are given all the same.",
    )
    store_deadline_s: float = Field(
        default=10.0, gt=0, description="How long one insert may keep trying."
    )
    store_batch_rows: int = Field(default=5_000, ge=1, description="Rows of one insert.")
    store_retry_max_s: float = Field(
        default=60.0, gt=0, description="Longest wait before rows are tried again."
    )
    beam_options: str = Field(
        default="--runner=FnApiRunner",
        description="Beam's options. Another runner needs its own; see docs on scaling out.",
    )
    read_piece: int = Field(
        default=100_000, ge=1, description="Offsets that one reader takes at a time."
    )

    def beam_arguments(self) -> list[str]:
        """Beam's options as a list. The runner is always named: Beam's default tries a download."""
        arguments = shlex.split(self.beam_options)
        if not any(a.startswith("--runner") for a in arguments):
            arguments.append("--runner=FnApiRunner")
        return arguments
