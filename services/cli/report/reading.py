"""What a page about a run shows, read from the store.

An `overview` is a JSON object:

    run         the run: suite, agent, seed, pins, state, counts
    verdict     null before the gate has decided; else verdict, reasons, diff, baseline_run_id
    baseline    the baseline's run, null where there is none
    scenarios   a list, each with its counts of sessions in the run and in the baseline
    sessions    a list of what is known of each session, those of the baseline marked
    left_out    how many sessions the list leaves out

A session's `detail` is `{"events": [...], "scores": [...]}`, the events in the order of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from services.cli.errors import CliError
from services.runtime.store.interface import Store

JsonObject = dict[str, Any]

_RUN = (
    "run_id, suite, suite_hash, suite_version, agent_id, agent_name, agent_fingerprint, seed, "
    "trials, requested_by, requested_at_ms, completed_at_ms, planned, ended, scored, state, "
    "pins_json"
)
_SESSION = (
    "session_id, scenario_id, category, trial, conversation_count, persona, started_at_ms, "
    "ended_at_ms, end_reason, end_detail, turns, tool_calls, injected_failures, "
    "agent_latency_ms_total, agent_latency_ms_max, input_tokens, output_tokens, cost_usd, valid, "
    "passed"
)
_EVENT = "session_id, event_id, kind, conversation, turn, at_ms, payload_json"
_SCORE = "session_id, dimension, kind, value, passed, status, reason, citations, evaluator"
_BATCH = 50
# Those that somebody has to look at come first.
_WORST_FIRST = "valid, isNotNull(passed), passed, category, scenario_id, trial, session_id"


class RunReader:
    """Reads runs from a store. Every method blocks, and raises StoreError when the store fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self, limit: int = 200) -> list[JsonObject]:
        """The latest runs with their verdicts, newest first."""
        runs = self._rows(
            f"SELECT {_RUN} FROM v_runs ORDER BY requested_at_ms DESC, run_id LIMIT %(limit)s",
            limit=limit,
        )
        wanted = [run["run_id"] for run in runs]
        verdicts: dict[str, JsonObject] = {}
        if wanted:
            found = self._rows(
                "SELECT run_id, verdict, baseline_run_id FROM v_verdicts WHERE run_id IN %(runs)s",
                runs=wanted,
            )
            verdicts = {row["run_id"]: row for row in found}
        return [{**run, "verdict": verdicts.get(run["run_id"])} for run in runs]

    def overview(self, run_id: str, limit: int) -> JsonObject:
        """The run without its events; of its sessions, and of the baseline's, `limit` at most.

        Raises:
            CliError: the store has no such run.
        """
        run = self.run(run_id)
        verdict = self._verdict(run_id)
        baseline_id = verdict["baseline_run_id"] if verdict else ""
        baseline = self._run(baseline_id) if baseline_id else None
        compared = [run_id] + ([baseline_id] if baseline else [])
        sessions = [
            {**session, "baseline": one != run_id}
            for one in compared
            for session in self._sessions(one, limit)
        ]
        scenarios = self._scenarios(compared)
        total = sum(side["sessions"] for s in scenarios for side in (s["run"], s["before"]) if side)
        return {
            "run": run,
            "verdict": verdict,
            "baseline": baseline,
            "scenarios": scenarios,
            "sessions": sessions,
            "left_out": max(0, total - len(sessions)),
        }

    def run(self, run_id: str) -> JsonObject:
        """What is known of the run itself.

        Raises:
            CliError: the store has no such run.
        """
        run = self._run(run_id)
        if run is None:
            raise CliError(
                f"the store has no run {run_id}; it has the run as soon as its first slice is "
                f"written (`windtunnel sql 'SELECT run_id FROM v_runs'` lists them)"
            )
        return run

    def sample(self, run_id: str, sessions: int, seed: int) -> list[JsonObject]:
        """`session_id` and `scenario_id` of ended sessions, at most so many, drawn by the seed."""
        return self._rows(
            "SELECT session_id, scenario_id FROM v_sessions "
            "WHERE run_id = %(run)s AND end_reason != '' "
            "ORDER BY sipHash64(concat(%(seed)s, ':', session_id)) LIMIT %(limit)s",
            run=run_id,
            seed=str(seed),
            limit=sessions,
        )

    def details(self, run_id: str, sessions: Sequence[str]) -> Iterator[tuple[str, JsonObject]]:
        """The details of these sessions of a run, in their order."""
        for start in range(0, len(sessions), _BATCH):
            batch = list(sessions[start : start + _BATCH])
            found: dict[str, JsonObject] = {one: {"events": [], "scores": []} for one in batch}
            where = "WHERE run_id = %(run)s AND session_id IN %(sessions)s"
            events = self._rows(
                f"SELECT {_EVENT} FROM v_trajectory_events {where} ORDER BY partition, position",
                run=run_id,
                sessions=batch,
            )
            for event in events:
                found[event.pop("session_id")]["events"].append(_event(event))
            scores = self._rows(
                f"SELECT {_SCORE} FROM v_scores {where} ORDER BY kind, dimension",
                run=run_id,
                sessions=batch,
            )
            for score in scores:
                found[score.pop("session_id")]["scores"].append(score)
            yield from found.items()

    def _run(self, run_id: str) -> JsonObject | None:
        found = self._rows(f"SELECT {_RUN} FROM v_runs WHERE run_id = %(run)s", run=run_id)
        return {**found[0], "pins": json.loads(found[0]["pins_json"] or "{}")} if found else None

    def _verdict(self, run_id: str) -> JsonObject | None:
        found = self._rows(
            "SELECT verdict, reasons, diff_json, baseline_run_id, decided_at_ms FROM v_verdicts "
            "WHERE run_id = %(run)s",
            run=run_id,
        )
        if not found:
            return None
        diff = json.loads(found[0].pop("diff_json") or "[]")
        return {**found[0], "diff": diff}

    def _sessions(self, run_id: str, limit: int) -> list[JsonObject]:
        return self._rows(
            f"SELECT {_SESSION} FROM v_sessions WHERE run_id = %(run)s "
            f"ORDER BY {_WORST_FIRST} LIMIT %(limit)s",
            run=run_id,
            limit=limit,
        )

    def _scenarios(self, runs: Sequence[str]) -> list[JsonObject]:
        counted = self._rows(
            "SELECT run_id, scenario_id, category, count() AS n, "
            "countIf(valid = 1 AND passed = 1) AS ok, countIf(valid = 0) AS bad, "
            "countIf(valid = 1 AND isNull(passed)) AS open, sum(injected_failures) AS injections "
            "FROM v_sessions WHERE run_id IN %(runs)s GROUP BY run_id, scenario_id, category "
            "ORDER BY category, scenario_id",
            runs=list(runs),
        )
        scenarios: dict[str, JsonObject] = {}
        for row in counted:
            name = row["scenario_id"]
            entry = scenarios.setdefault(
                name,
                {"scenario_id": name, "category": row["category"], "run": None, "before": None},
            )
            # An alias that is a column's name would be taken for it.
            entry["run" if row["run_id"] == runs[0] else "before"] = {
                "sessions": row["n"],
                "passed": row["ok"],
                "invalid": row["bad"],
                "unscored": row["open"],
                "injected": row["injections"],
            }
        return list(scenarios.values())

    def _rows(self, sql: str, **parameters: object) -> list[JsonObject]:
        result = self._store.query(sql, parameters)
        names = [name for name, _ in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.rows]


def _event(row: JsonObject) -> JsonObject:
    return {
        "step": row["event_id"].rpartition(":")[2],
        "kind": row["kind"],
        "conversation": row["conversation"],
        "turn": row["turn"],
        "at_ms": row["at_ms"],
        "body": json.loads(row["payload_json"] or "null"),
    }
