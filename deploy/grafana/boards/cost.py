"""Cost: tokens and dollars, of the agents and of our own models."""

from __future__ import annotations

from typing import Any

from deploy.grafana.boards.runs import SUITE
from deploy.grafana.panels import board, prom, rows, series, sql

_RUNS = "r.suite IN (${suite:singlequote}) AND r.requested_at_ms BETWEEN $__from AND $__to"


def build() -> Any:
    made = board(
        "windtunnel-cost", "Windtunnel / Cost", "Tokens and US dollars, by role and model.",
        variables=(SUITE,),
    )  # fmt: skip
    made.with_panel(
        series(
            "Tokens of our models",
            "Simulated users, worlds and judges, a second.",
            prom(
                "sum by (role, model, direction) (rate(windtunnel_model_tokens_total[5m])) "
                "or vector(0)",
                "{{role}} {{model}} {{direction}}",
            ),
        )
    )
    made.with_panel(
        series(
            "Cost of our models",
            "US dollars in the last hour; where prices are known.",
            prom(
                "role_model:windtunnel_model_cost_usd:increase1h or vector(0)", "{{role}} {{model}}"
            ),
            unit="currencyUSD",
        )
    )
    made.with_panel(
        series(
            "Calls to models that failed",
            "By role and outcome, a second.",
            prom(
                'sum by (role, outcome) (rate(windtunnel_model_calls_total{outcome!="ok"}[5m])) '
                "or vector(0)",
                "{{role}} {{outcome}}",
            ),
        )
    )
    made.with_panel(
        series(
            "Tokens of the agents",
            "As they report them, at each run.",
            sql(
                "SELECT fromUnixTimestamp64Milli(r.requested_at_ms) AS time, r.agent_id AS agent, "
                "sum(s.input_tokens + s.output_tokens) AS tokens FROM v_sessions AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE {_RUNS} GROUP BY time, agent "
                f"ORDER BY time"
            ),
        )
    )
    made.with_panel(
        rows(
            "By run",
            "What agents reported, and what a passed session cost.",
            sql(
                "SELECT s.run_id AS run, any(r.agent_id) AS agent, count() AS sessions, "
                "sum(s.input_tokens) AS input, sum(s.output_tokens) AS output, "
                "sum(s.cost_usd) AS cost, "
                "sum(s.cost_usd) / greatest(countIf(s.passed = 1), 1) AS each FROM v_sessions AS s "
                f"JOIN v_runs AS r ON r.run_id = s.run_id WHERE {_RUNS} GROUP BY run "
                "ORDER BY cost DESC, run LIMIT 200"
            ),
            units={"cost": "currencyUSD", "each": "currencyUSD"},
            width=12,
        )
    )
    made.with_panel(
        rows(
            "By scenario",
            "Over the chosen runs.",
            sql(
                "SELECT s.scenario_id AS scenario, count() AS sessions, "
                "sum(s.input_tokens + s.output_tokens) AS tokens, sum(s.cost_usd) AS cost "
                f"FROM v_sessions AS s JOIN v_runs AS r ON r.run_id = s.run_id WHERE {_RUNS} "
                "GROUP BY scenario ORDER BY cost DESC, tokens DESC LIMIT 200"
            ),
            units={"cost": "currencyUSD"},
            width=12,
        )
    )
    return made
