"""D07: what Beam counts in processes of its own is not lost with them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from pipelines.score_run import Parts, aggregate
from schemas.codec import Codec
from schemas.runs import OffsetRange
from schemas.topics import SCORES
from services.runtime.bus.records import Incoming, Outgoing
from tests.support import scored_runs as runs
from tests.support.live import ROOT

pytestmark = [pytest.mark.timeout(180), pytest.mark.req("D07", "D03")]
CODEC = Codec()
NEWEST_MS = 1_700_000_000_000


def read(folder: Path, topic: str, partition: int, start: int, end: int) -> Iterator[Incoming]:
    """A stretch of the log in a file; leaves behind who has read it."""
    (folder / f"read-by-{os.getpid()}").touch()
    for record in pickle.loads((folder / "log").read_bytes()):
        if (record.topic, record.partition) == (topic, partition) and start <= record.offset < end:
            yield record


def append(folder: Path, records: Sequence[Outgoing]) -> None:
    """Into another file, one line a record."""
    with (folder / "appended").open("a") as file:
        file.writelines(f"{record.topic}\n" for record in records)


def test_counters_of_beams_worker_processes_come_back_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log = [
        Incoming(out.topic, 0, offset, out.key, out.value, dict(out.headers), NEWEST_MS - offset)
        for offset, out in enumerate(
            runs.outgoing(CODEC, runs.score("a", trial, runs.gate("safety", True)))
            for trial in range(6)
        )
    ]
    log.append(Incoming(SCORES.full_name, 0, 6, "k", b"\xff", {"run": runs.RUN}, NEWEST_MS))
    (tmp_path / "log").write_bytes(pickle.dumps(log))
    stretch = OffsetRange(topic=SCORES.full_name, partition=0, start=0, end=len(log))
    result = aggregate(
        runs.status({"a": 6}, stretch),
        Parts(
            read=partial(read, tmp_path), make_codec=Codec, append=partial(append, tmp_path),
            make_store=None, piece=2,
            beam_arguments=(
                "--runner=FnApiRunner", "--direct_running_mode=multi_processing",
                "--direct_num_workers=2",
            ),
        ),
    )  # fmt: skip
    readers = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("read-by-*")}
    assert readers
    assert os.getpid() not in readers
    appended = sorted((tmp_path / "appended").read_text().split())
    assert appended == ["windtunnel.aggregates", "windtunnel.dead-letters"]
    assert {name: count for name, count in result.counters.items() if count} == {
        "pieces_read": 4, "dead_letters": 1, "buried.scores": 1, "published.aggregates": 1,
        "published.dead-letters": 1,
    }  # fmt: skip
    assert result.newest_ms == NEWEST_MS
