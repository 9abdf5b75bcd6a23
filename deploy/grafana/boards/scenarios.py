"""Scenario explorer: how each scenario fares over time, and against its baseline."""

from __future__ import annotations

from typing import Any

from deploy.grafana.boards.runs import SUITE
from deploy.grafana.panels import board, choice, rows, series, sql

AGENT = choice("agent", "Agent", "SELECT DISTINCT agent_name FROM v_runs ORDER BY agent_name")
SCENARIO = choice(
    "scenario", "Scenario", "SELECT DISTINCT scenario_id FROM v_sessions ORDER BY scenario_id"
)
_RUNS = (
    "r.suite IN (${suite:singlequote}) AND r.agent_name IN (${agent:singlequote}) "
    "AND r.requested_at_ms BETWEEN $__from AND $__to"
)
_OF = "s.scenario_id IN (${scenario:singlequote})"
TRAJECTORY = "http://127.0.0.1:8790/run?run=${__data.fields.run}#/scenario/${__value.raw}"


def build() -> Any:
    made = board(
        "windtunnel-scenarios", "Windtunnel / Scenario explorer",
        "Pass rates, pass^k and regressions by scenario.", variables=(SUITE, AGENT, SCENARIO),
    )  # fmt: skip
    made.with_panel(
        series(
            "Pass rate",
            "Sessions that passed, of all, at each run.",
            sql(
                "SELECT fromUnixTimestamp64Milli(r.requested_at_ms) AS time, s.scenario_id "
                "AS scenario, "
                "countIf(s.valid = 1 AND s.passed = 1) / count() AS ok FROM v_sessions AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE {_RUNS} AND {_OF} "
                "GROUP BY time, scenario ORDER BY time"
            ),
            unit="percentunit",
            width=24,
        )
    )
    made.with_panel(
        series(
            "Pass rate by dimension",
            "Over the chosen scenarios, at each run.",
            sql(
                "SELECT fromUnixTimestamp64Milli(r.requested_at_ms) AS time, s.dimension AS "
                "dimension, "
                "sum(s.passed) / greatest(sum(s.scored + s.unscored), 1) AS ok FROM "
                "v_score_aggregates AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE s.kind = 'gate' AND {_RUNS} "
                f"AND {_OF} "
                "GROUP BY time, dimension ORDER BY time"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        series(
            "pass^k",
            "Mean over the chosen scenarios' gates of the chance that k trials in a row pass.",
            sql(
                "SELECT fromUnixTimestamp64Milli(r.requested_at_ms) AS time, concat('k = ', "
                "toString(k)) "
                "AS trials, avg(value) AS chance FROM (SELECT run_id, scenario_id, "
                "arrayJoin(arrayZip(pass_hat_k_k, pass_hat_k_value)) AS pair, pair.1 AS k, "
                "pair.2 AS value "
                "FROM v_score_aggregates WHERE notEmpty(pass_hat_k_k)) AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE k <= 8 AND {_RUNS} AND {_OF} "
                "GROUP BY time, trials ORDER BY time"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        rows(
            "Unsteady",
            "Passed in some sessions and failed in others. Flaky: in so many builds that did both.",
            sql(
                "SELECT scenario, sum(n) AS sessions, sum(k) / sum(n) AS ok, "
                "countIf(k > 0 AND k < n) AS flaky, count() AS builds FROM ("
                "SELECT s.scenario_id AS scenario, r.agent_fingerprint AS build, count() AS n, "
                "countIf(s.passed = 1) AS k FROM v_sessions AS s JOIN v_runs AS r ON "
                "r.run_id = s.run_id "
                f"WHERE s.valid = 1 AND {_RUNS} AND {_OF} GROUP BY scenario, build) "
                "GROUP BY scenario HAVING ok > 0 AND ok < 1 ORDER BY flaky DESC, ok LIMIT 200"
            ),
            units={"ok": "percentunit"},
        )
    )
    made.with_panel(
        rows(
            "Regressed against the baseline",
            "As the gate compared them.",
            sql(
                "SELECT v.run_id AS run, JSONExtractString(d, 'scenario_id') AS scenario, "
                "JSONExtractString(d, 'dimension') AS dimension, "
                "JSONExtractFloat(d, 'baseline', 'value') AS before, "
                "JSONExtractFloat(d, 'candidate', 'value') AS now, "
                "JSONExtractBool(d, 'hard') AS hard FROM v_verdicts AS v "
                "ARRAY JOIN JSONExtractArrayRaw(v.diff_json) AS d "
                "WHERE JSONExtractString(d, 'change') = 'regressed' "
                "AND v.suite IN (${suite:singlequote}) AND v.agent_name IN (${agent:singlequote}) "
                "AND scenario IN (${scenario:singlequote}) "
                "AND v.decided_at_ms BETWEEN $__from AND $__to ORDER BY v.decided_at_ms DESC "
                "LIMIT 500"
            ),
            links={"scenario": ("Open the trajectories", TRAJECTORY)},
        )
    )
    made.with_panel(
        rows(
            "Scores that failed",
            "The judge's reasons, latest runs first.",
            sql(
                "SELECT s.run_id AS run, s.scenario_id AS scenario, s.trial AS trial, "
                "s.dimension AS dimension, s.reason AS reason FROM v_scores AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE s.passed = 0 AND {_RUNS} AND {_OF} "
                "ORDER BY r.requested_at_ms DESC, scenario, trial LIMIT 200"
            ),
            links={"scenario": ("Open the trajectories", TRAJECTORY)},
        )
    )
    return made
