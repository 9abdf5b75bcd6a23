"""Runs: how far they are, what came out, and why."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import bars, board, choice, number, prom, rows, series, sql, word

SUITE = choice("suite", "Suite", "SELECT DISTINCT suite FROM v_runs ORDER BY suite")
RUN = choice(
    "run",
    "Run",
    "SELECT run_id FROM v_runs WHERE suite IN (${suite:singlequote}) "
    "ORDER BY requested_at_ms DESC LIMIT 200",
    every=False,
)
VIEW = "http://127.0.0.1:8790/run?run=${__value.raw}"
"""Where `windtunnel view` shows a run."""


def build() -> Any:
    made = board(
        "windtunnel-runs", "Windtunnel / Runs", "Runs and verdicts.", variables=(SUITE, RUN)
    )
    made.with_panel(
        word(
            "Verdict",
            "What the gate said.",
            sql("SELECT verdict FROM v_verdicts WHERE run_id = '$run'"),
        )
    )
    made.with_panel(
        number(
            "Ended",
            "Sessions that ended, of those planned.",
            sql(
                "SELECT if(planned = 0, 0, ended / planned) AS ended FROM v_runs WHERE "
                "run_id = '$run'"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        number(
            "Judged",
            "Sessions that are judged, of those planned.",
            sql(
                "SELECT if(planned = 0, 0, scored / planned) AS judged FROM v_runs WHERE "
                "run_id = '$run'"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        number(
            "Passed",
            "Sessions in which every gate passed, of those judged.",
            sql(
                "SELECT countIf(valid = 1 AND passed = 1) / greatest(count(), 1) AS ok FROM "
                "v_sessions "
                "WHERE run_id = '$run'"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        number(
            "Invalid or unscored",
            "Sessions that say nothing; they never pass.",
            sql(
                "SELECT countIf(valid = 0 OR isNull(passed)) AS silent FROM v_sessions "
                "WHERE run_id = '$run'"
            ),
        )
    )
    made.with_panel(
        number(
            "Injected failures",
            "In all sessions of the run.",
            sql("SELECT sum(injected_failures) AS injected FROM v_sessions WHERE run_id = '$run'"),
        )
    )
    made.with_panel(
        bars(
            "Passed by category",
            "Share of the run's sessions that passed.",
            sql(
                "SELECT category, countIf(valid = 1 AND passed = 1) / count() AS ok FROM "
                "v_sessions "
                "WHERE run_id = '$run' GROUP BY category ORDER BY category"
            ),
            unit="percentunit",
        )
    )
    made.with_panel(
        bars(
            "Why sessions ended",
            "Reasons, over the run's sessions.",
            sql(
                "SELECT end_reason, count() AS sessions FROM v_sessions WHERE run_id = '$run' "
                "GROUP BY end_reason ORDER BY sessions DESC"
            ),
        )
    )
    made.with_panel(
        rows(
            "Why this verdict",
            "The gate's reasons, failing ones first.",
            sql("SELECT arrayJoin(reasons) AS reason FROM v_verdicts WHERE run_id = '$run'"),
        )
    )
    made.with_panel(
        rows(
            "Runs",
            "The latest of the chosen suites; a run's name opens the viewer.",
            sql(
                "SELECT r.run_id AS run, v.verdict AS verdict, r.state AS state, r.agent_id "
                "AS agent, "
                "r.planned AS planned, r.ended AS ended, r.scored AS scored, "
                "fromUnixTimestamp64Milli(r.requested_at_ms) AS requested FROM v_runs AS r "
                "LEFT JOIN v_verdicts AS v ON v.run_id = r.run_id WHERE r.suite IN "
                "(${suite:singlequote}) "
                "ORDER BY r.requested_at_ms DESC LIMIT 100"
            ),
            links={"run": ("Open the run", VIEW)},
        )
    )
    made.with_panel(
        series(
            "Sessions started",
            "By category, a second.",
            prom("sum by (category) (rate(windtunnel_sessions_started_total[1m]))", "{{category}}"),
        )
    )
    made.with_panel(
        series(
            "Sessions ended",
            "By reason, a second.",
            prom("sum by (reason) (rate(windtunnel_sessions_ended_total[1m]))", "{{reason}}"),
        )
    )
    return made
