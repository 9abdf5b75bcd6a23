"""Load: arrivals, concurrency, latency, errors, saturation."""

from __future__ import annotations

from typing import Any

from deploy.grafana.boards.runs import RUN, SUITE
from deploy.grafana.panels import board, prom, rows, series, sql, thresholds

_QUANTILES = (0.5, 0.9, 0.99)


def build() -> Any:
    made = board(
        "windtunnel-load", "Windtunnel / Load", "The agent under load.", variables=(SUITE, RUN)
    )
    made.with_panel(
        series(
            "Arrivals",
            "Sessions started a second.",
            prom("sum(rate(windtunnel_sessions_started_total[1m]))", "started"),
        )
    )
    made.with_panel(
        series(
            "Concurrency",
            "Sessions that each service holds.",
            prom("sum by (service) (windtunnel_sessions_held)", "{{service}}"),
        )
    )
    made.with_panel(
        series(
            "The agent's answers",
            "From posting a turn to the whole answer.",
            *(
                prom(
                    f"histogram_quantile({q}, sum by (le) "
                    f"(rate(windtunnel_agent_turn_seconds_bucket[1m])))",
                    f"p{q * 100:g}",
                    ref,
                )
                for q, ref in zip(_QUANTILES, "ABC", strict=True)
            ),
            unit="s",
            bounds=thresholds(5, 30),
        )
    )
    made.with_panel(
        series(
            "Turns that failed",
            "By outcome, a second.",
            prom(
                'sum by (outcome) (rate(windtunnel_agent_turn_seconds_count{outcome!="ok"}[1m])) '
                "or vector(0)",
                "{{outcome}}",
            ),
        )
    )
    made.with_panel(
        series(
            "Admission queue",
            "Sessions that wait for a place, for their time, or for their phase.",
            prom("sum by (waiting_for) (windtunnel_admission_queue_sessions)", "{{waiting_for}}"),
        )
    )
    made.with_panel(
        series(
            "Saturation",
            "What each service does at once, of what its settings allow. At 100 % the test limits "
            "the load, not the agent.",
            prom("service_bound:windtunnel_actions:saturation", "{{service}} {{bound}}"),
            unit="percentunit",
            bounds=thresholds(0.8, 1),
        )
    )
    made.with_panel(
        series(
            "Waiting for a service",
            "What is due for sessions while a service is at its bound.",
            prom("sum by (service, bound) (windtunnel_actions_waiting)", "{{service}} {{bound}}"),
            bounds=thresholds(1, 100),
        )
    )
    made.with_panel(
        series(
            "Users and judges",
            "How long a simulated user takes to write, and a session to be judged, p99.",
            prom("windtunnel:user_turn_seconds:p99_5m", "a user's turn", "A"),
            prom("windtunnel:judging_seconds:p99_5m", "judging a session", "B"),
            unit="s",
        )
    )
    made.with_panel(
        series(
            "Actions",
            "How long one took, p99, by kind.",
            prom(
                "histogram_quantile(0.99, sum by (le, action) "
                "(rate(windtunnel_action_seconds_bucket[1m])))",
                "{{action}}",
            ),
            unit="s",
        )
    )
    made.with_panel(
        series(
            "Sessions at once",
            "Of the chosen run, as they began and ended.",
            sql(
                "SELECT fromUnixTimestamp64Milli(at) AS time, max(depth) AS sessions FROM ("
                "SELECT at, sum(step) OVER (ORDER BY at, step DESC) AS depth FROM ("
                "SELECT started_at_ms AS at, 1 AS step FROM v_sessions WHERE run_id = '$run' "
                "UNION ALL "
                "SELECT assumeNotNull(ended_at_ms) AS at, -1 AS step FROM v_sessions "
                "WHERE run_id = '$run' AND isNotNull(ended_at_ms))) GROUP BY time ORDER BY time"
            ),
        )
    )
    made.with_panel(
        rows(
            "Turns by scenario",
            "Of the chosen run; milliseconds.",
            sql(
                "SELECT scenario_id AS scenario, count() AS turns, "
                "quantileExact(0.5)(latency_ms) AS p50, "
                "quantileExact(0.95)(latency_ms) AS p95, quantileExact(0.99)(latency_ms) AS p99, "
                "max(latency_ms) AS slowest FROM v_trajectory_events WHERE run_id = '$run' "
                "AND kind = 'agent_turn' GROUP BY scenario ORDER BY p99 DESC"
            ),
            units=dict.fromkeys(("p50", "p95", "p99", "slowest"), "ms"),
            width=12,
        )
    )
    return made
