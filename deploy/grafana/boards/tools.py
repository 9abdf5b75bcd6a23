"""Tools and injection: who answered, what was put in, what was refused."""

from __future__ import annotations

from typing import Any

from deploy.grafana.boards.runs import RUN, SUITE
from deploy.grafana.panels import bars, board, prom, rows, series, sql, thresholds


def build() -> Any:
    made = board(
        "windtunnel-tools", "Windtunnel / Tools and injection",
        "Tool calls, injected failures and refusals.", variables=(SUITE, RUN),
    )  # fmt: skip
    made.with_panel(
        series(
            "Tool calls",
            "By who answered, a second.",
            prom("sum by (source) (rate(windtunnel_tool_calls_total[1m]))", "{{source}}"),
        )
    )
    made.with_panel(
        series(
            "Injected failures",
            "By kind, a second.",
            prom(
                'sum by (injection) (rate(windtunnel_tool_calls_total{injection!=""}[1m]))',
                "{{injection}}",
            ),
        )
    )
    made.with_panel(
        series(
            "What the proxy adds",
            "p50 and p99, until the call is in the log; without injected delay, and without the "
            "time at real tools and models.",
            prom(
                "histogram_quantile(0.5, sum by (le) "
                "(rate(windtunnel_tool_proxy_overhead_seconds_bucket[1m])))",
                "p50",
                "A",
            ),
            prom(
                "histogram_quantile(0.99, sum by (le) "
                "(rate(windtunnel_tool_proxy_overhead_seconds_bucket[1m])))",
                "p99",
                "B",
            ),
            unit="s",
            width=8,
            bounds=thresholds(0.1, 0.25),
        )
    )
    made.with_panel(
        series(
            "From call to answer",
            "p99 by who answered, injected delay included.",
            prom(
                "histogram_quantile(0.99, sum by (le, source) "
                "(rate(windtunnel_tool_call_seconds_bucket[1m])))",
                "{{source}}",
            ),
            unit="s",
            width=8,
        )
    )
    made.with_panel(
        series(
            "Refusals",
            "By code, a second; docs/tool-proxy-errors.md explains each.",
            prom(
                "sum by (code) (rate(windtunnel_tool_refusals_total[1m])) or vector(0)", "{{code}}"
            ),
            width=8,
        )
    )
    made.with_panel(
        bars(
            "Injected in this run",
            "By kind.",
            sql(
                "SELECT injection, count() AS calls FROM v_trajectory_events WHERE run_id = '$run' "
                "AND injection != '' GROUP BY injection ORDER BY calls DESC"
            ),
        )
    )
    made.with_panel(
        bars(
            "Recovered",
            "Share of sessions with failures that recovered, by scenario.",
            sql(
                "SELECT scenario_id, avg(passed) AS recovered FROM v_scores WHERE run_id = '$run' "
                "AND dimension = 'failure_recovery' AND status = 'scored' GROUP BY scenario_id "
                "ORDER BY recovered, scenario_id"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        rows(
            "Tools of this run",
            "Calls by tool and answer; milliseconds.",
            sql(
                "SELECT tool, source, injection, count() AS calls, "
                "quantileExact(0.5)(latency_ms) AS p50, "
                "quantileExact(0.99)(latency_ms) AS p99 FROM v_trajectory_events WHERE "
                "run_id = '$run' "
                "AND kind = 'tool_called' GROUP BY tool, source, injection ORDER BY calls DESC"
            ),
            units={"p50": "ms", "p99": "ms"},
        )
    )
    return made
