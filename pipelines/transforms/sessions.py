"""Per session: duplicates removed, rows for the store, and the score that counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from pipelines.rows import (
    Logged,
    Row,
    event_rows,
    events_in_order,
    first_score,
    score_rows,
    session_row,
)
from schemas.scores import SessionScored

#: A row on its way to the store, with its table.
TableRow = tuple[str, Row]


class FirstScores(beam.PTransform[Any, Any]):
    """(session id, Logged) to SessionScored: of a session's records the one with the lowest
    offset, whatever order they arrive in."""

    def expand(self, logged: Any) -> Any:
        return (
            logged
            | "by session" >> beam.CombinePerKey(_lowest_offset)
            | "scores" >> beam.Values()
            | "records" >> beam.Map(lambda entry: entry.record)
        )


def _lowest_offset(entries: Iterable[Logged]) -> Logged:
    return min(entries, key=lambda entry: (entry.partition, entry.offset))


class SessionRows(beam.PTransform[Any, Any]):
    """(session id, Logged) to TableRow: all rows of trajectory_events, sessions and scores.

    One session's records meet on one worker, so a session has to fit into its memory; the bounds
    on turns and tool calls see to that. `version` is that of session and score rows.
    """

    def __init__(self, version: int) -> None:
        super().__init__()
        self._version = version

    def expand(self, logged: Any) -> Any:
        return (
            logged
            | "by session" >> beam.GroupByKey()
            | "rows" >> beam.FlatMap(_rows_of_group, self._version)
        )


def _rows_of_group(group: tuple[str, Iterable[Logged]], version: int) -> Iterator[TableRow]:
    return rows_of_session(group[1], version)


def rows_of_session(logged: Iterable[Logged], version: int) -> Iterator[TableRow]:
    """All rows of one session, from its records in any order, duplicates included."""
    entries = list(logged)
    events = events_in_order(entries)
    score: SessionScored | None = first_score(entries)
    session = session_row([event for _, event in events], score, version)
    scenario_id = str(session["scenario_id"]) if session else ""
    for row in event_rows(events, scenario_id):
        yield "trajectory_events", row
    if session is not None:
        yield "sessions", session
    if score is not None:
        for row in score_rows(score, version):
            yield "scores", row
