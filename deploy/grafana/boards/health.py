"""Pipeline health: is every service up, is the log read, is anything lost."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import board, number, prom, series, thresholds


def build() -> Any:
    made = board("windtunnel-health", "Windtunnel / Pipeline health", "The services themselves.")
    made.with_panel(
        number("Services up", "That answer their scrape.", prom('sum(up{job="windtunnel"})'))
    )
    made.with_panel(
        number("Services ready", "Less than are up: see /readyz.", prom("sum(windtunnel_ready)"))
    )
    made.with_panel(number("Runs active", "Being conducted.", prom("sum(windtunnel_runs_active)")))
    made.with_panel(
        number(
            "Dead letters",
            "Records that could not be read, in a day.",
            prom("sum(increase(windtunnel_dead_letters_total[1d])) or vector(0)"),
            bounds=thresholds(1),
        )
    )
    made.with_panel(
        number(
            "Spoilt sessions",
            "Ended for reasons that are not the agent's.",
            prom("windtunnel:sessions_spoilt:ratio5m or vector(0)"),
            unit="percentunit",
            bounds=thresholds(0.01, 0.05),
        )
    )
    made.with_panel(
        number(
            "Unscored",
            "Scores that could not be given.",
            prom("windtunnel:scores_unscored:ratio5m or vector(0)"),
            unit="percentunit",
            bounds=thresholds(0.01, 0.05),
        )
    )
    made.with_panel(
        series(
            "Records produced",
            "By topic, a second.",
            prom("sum by (topic) (rate(windtunnel_events_produced_total[1m]))", "{{topic}}"),
        )
    )
    made.with_panel(
        series(
            "Records consumed",
            "By service, a second.",
            prom("sum by (service) (rate(windtunnel_events_consumed_total[1m]))", "{{service}}"),
        )
    )
    made.with_panel(
        series(
            "Low-water lag",
            "Records that a restart would replay.",
            prom("max by (service) (windtunnel_low_water_lag_records)", "{{service}}"),
            bounds=thresholds(100_000, 500_000),
        )
    )
    made.with_panel(
        series(
            "Consumer lag",
            "Records between what a service has taken in and the end of what it reads.",
            prom("service_topic:windtunnel_consumer_lag_records:sum", "{{service}} {{topic}}"),
            bounds=thresholds(1_000, 10_000),
        )
    )
    made.with_panel(
        series(
            "Oldest unfinished session",
            "How long ago it began.",
            prom("max by (service) (windtunnel_low_water_age_seconds)", "{{service}}"),
            unit="s",
            bounds=thresholds(3_600, 7_800),
        )
    )
    made.with_panel(
        series(
            "Watermark delay",
            "From a run's newest record to when a job is through with the run, p99.",
            prom(
                "histogram_quantile(0.99, sum by (le, stage) "
                "(rate(windtunnel_pipeline_watermark_delay_seconds_bucket[30m])))",
                "{{stage}}",
            ),
            unit="s",
            bounds=thresholds(60, 120),
        )
    )
    made.with_panel(
        series(
            "Tried again",
            "By service and what, a second.",
            prom("service_what:windtunnel_retries:rate5m", "{{service}} {{what}}"),
        )
    )
    made.with_panel(
        series(
            "Events that changed nothing",
            "By why, a second.",
            prom(
                "sum by (why) (rate(windtunnel_events_ignored_total[1m])) or vector(0)", "{{why}}"
            ),
        )
    )
    made.with_panel(
        series(
            "Rows written",
            "By table, a second.",
            prom("sum by (table) (rate(windtunnel_pipeline_rows_total[1m]))", "{{table}}"),
        )
    )
    made.with_panel(
        series(
            "Jobs of a run",
            "How long one took, p99, by how it went.",
            prom(
                "histogram_quantile(0.99, sum by (le, outcome) "
                "(rate(windtunnel_pipeline_seconds_bucket[30m])))",
                "{{outcome}}",
            ),
            unit="s",
        )
    )
    made.with_panel(
        series(
            "Pieces of the log",
            "That jobs have read in the last hour, by job.",
            prom("sum by (stage) (increase(windtunnel_pipeline_pieces_total[1h]))", "{{stage}}"),
        )
    )
    made.with_panel(
        series(
            "The embedded store's queue",
            "Statements that wait or are under way; of the one-machine stack.",
            prom("sum(windtunnel_store_statements_waiting) or vector(0)", "statements"),
            bounds=thresholds(16, 32),
        )
    )
    made.with_panel(
        series(
            "The embedded store's statements",
            "How long one takes, p99, waiting for its turn included.",
            prom(
                "histogram_quantile(0.99, sum by (le) "
                "(rate(windtunnel_store_statement_seconds_bucket[5m]))) or vector(0)",
                "p99",
            ),
            unit="s",
        )
    )
    made.with_panel(
        series(
            "Processors",
            "How many each service keeps busy.",
            prom(
                'sum by (service) (rate(process_cpu_seconds_total{job="windtunnel"}[1m]))',
                "{{service}}",
            ),
        )
    )
    made.with_panel(
        series(
            "Memory",
            "Of the largest process of each service.",
            prom(
                'max by (service) (process_resident_memory_bytes{job="windtunnel"})',
                "{{service}}",
            ),
            unit="bytes",
        )
    )
    made.with_panel(
        series(
            "Verdicts",
            "In the last hour.",
            prom("sum by (verdict) (increase(windtunnel_gate_verdicts_total[1h]))", "{{verdict}}"),
        )
    )
    made.with_panel(
        series(
            "Control API",
            "Requests by status, a second.",
            prom(
                "sum by (status) (rate(windtunnel_control_requests_total[1m])) or vector(0)",
                "{{status}}",
            ),
        )
    )
    return made
