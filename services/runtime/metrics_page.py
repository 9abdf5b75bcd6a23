"""`python -m services.runtime.metrics_page`: docs/metrics.md, made from the catalogue."""

from __future__ import annotations

from services.runtime.metrics import CATALOGUE, SECONDS, Metric

_HEAD = """# Metrics

Every service answers `GET /metrics` on its HTTP port in Prometheus's text format. A stack of
`windtunnel up` lists its services' addresses in `prometheus-targets.json` of its directory, for
`file_sd_configs`; [deploy/prometheus](../deploy/prometheus) has the configuration, recording rules
and alerts, and [runbook.md](runbook.md) says what to do about each alert.

No label grows with runs or sessions: what is asked of one run is asked of the store
(`windtunnel sql`, `windtunnel report`). Counters end in `_total`; each process counts for itself,
so sums are taken over instances. Histograms are in seconds, with the buckets {buckets}.

This page is made from `services/runtime/metrics.py` by `make schemas`.
"""


def page() -> str:
    """The page's text."""
    buckets = ", ".join(f"{bound:g}" for bound in SECONDS)
    rows = sorted(CATALOGUE, key=lambda metric: metric.name)
    return _HEAD.format(buckets=buckets) + "".join(map(_entry, rows))


def _entry(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return (
        f"\n## `{metric.name}`\n\n{metric.meaning}\n\n"
        f"- kind: {metric.kind}\n- labels: {labels}\n- when it looks wrong: {metric.when_wrong}\n"
    )


if __name__ == "__main__":
    print(page(), end="")
