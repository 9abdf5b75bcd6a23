"""What a sandbox may take, and how many there may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.dispatcher.settings import DispatcherSettings

MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Of an answer: as much as an agent over HTTP may answer."""
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
"""Of stdout and stderr together, after which the turn is over; only their ends are kept."""
MAX_TMP_FILES = 20_000
"""Empty files take no space of a tmpfs, but of the kernel's memory."""


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """The operator's settings, `code_*` of DispatcherSettings.

    `memory_mb` bounds the address space of each process, and what all of a sandbox hold together,
    files in its temporary folders included. `processes` counts threads too.
    """

    memory_mb: int = 1024
    processes: int = 64
    open_files: int = 256
    disk_mb: int = 64
    cpu_s: int = 120
    concurrency: int = 16
    pool: int = 8
    pool_idle_s: float = 300.0
    packages: Path | None = None
    start_timeout_s: float = 15.0

    @classmethod
    def of(cls, settings: DispatcherSettings) -> CodeLimits:
        """As the dispatcher was configured."""
        return cls(
            memory_mb=settings.code_memory_mb,
            processes=settings.code_processes,
            open_files=settings.code_open_files,
            disk_mb=settings.code_disk_mb,
            cpu_s=settings.code_cpu_s,
            concurrency=settings.code_concurrency,
            pool=settings.code_pool,
            pool_idle_s=settings.code_pool_idle_s,
            packages=Path(settings.code_packages) if settings.code_packages else None,
        )
