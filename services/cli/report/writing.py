"""`windtunnel report`: a run in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from services.cli.files import written_whole
from services.cli.report.page import document
from services.cli.report.reading import JsonObject, RunReader

DEFAULT_SESSIONS = 2_000
"""So many sessions of a run, and so many of its baseline, the file holds; the worst come first."""
Progress = Callable[[int, int], None]


def write_report(
    reader: RunReader,
    run_id: str,
    path: Path,
    *,
    limit: int = DEFAULT_SESSIONS,
    progress: Progress = lambda done, of: None,
) -> int:
    """Write the run's page. A file of before stays until the new one is complete.

    Args:
        reader: where the run is read from.
        run_id: the run.
        path: the file.
        limit: the most sessions of the run, and of its baseline.
        progress: hears how many sessions of how many are written.

    Returns:
        How many sessions were left out.

    Raises:
        CliError: there is no such run.
        StoreError: the store failed.
        OSError: the file cannot be written.
    """
    index = reader.overview(run_id, limit)
    with written_whole(path) as file:
        for piece in document(f"{run_id} · Windtunnel", index, _details(reader, index, progress)):
            file.write(piece)
    left_out: int = index["left_out"]
    return left_out


def _details(reader: RunReader, index: JsonObject, progress: Progress) -> Iterator[tuple[str, Any]]:
    sessions: list[JsonObject] = index["sessions"]
    done = 0
    for of_baseline in (False, True):
        run = index["baseline"] if of_baseline else index["run"]
        ids = [one["session_id"] for one in sessions if one["baseline"] is of_baseline]
        for detail in reader.details(run["run_id"], ids) if ids else ():
            yield detail
            done += 1
            progress(done, len(sessions))
