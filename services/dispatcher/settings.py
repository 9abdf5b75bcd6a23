"""The dispatcher's settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from services.runtime.judging import JudgeModelSettings
from services.runtime.settings import TokenSettings


class DispatcherSettings(JudgeModelSettings, TokenSettings):
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
    # Of sandboxes, in which agents of kind code run.
    code_memory_mb: int = Field(
        default=1024, ge=128, description="Memory of a sandbox, and address space of each process."
    )
    code_processes: int = Field(
        default=64, ge=4, description="Processes and threads of a sandbox at once."
    )
    code_open_files: int = Field(default=256, ge=32, description="Open files of each process.")
    code_disk_mb: int = Field(default=64, ge=1, description="Each of its temporary folders.")
    code_cpu_s: int = Field(default=120, ge=1, description="CPU time of each of its processes.")
    code_concurrency: int = Field(default=16, ge=1, description="Sandboxes with a turn at once.")
    code_pool: int = Field(
        default=8, ge=0, description="Sandboxes kept ready, so that turns do not wait for a start."
    )
    code_pool_idle_s: float = Field(default=300.0, gt=0, description="How long they are kept.")
    code_packages: str = Field(
        default="", description="Folder of packages that agents' source may import, read-only."
    )
    code_cache: str = Field(
        default="", description="Where unpacked source is kept; empty for the temporary folder."
    )
    code_cache_mb: int = Field(default=1024, ge=64, description="How much of it is kept.")
    # As user simulator and tool proxy are set: the coordinator records what a run was pinned to.
    user_simulator: Literal["agenda", "llm"] = "agenda"
    user_model: str = ""
    user_model_temperature: float = 0.7
    world_model: str = ""
    world_model_temperature: float = 0
