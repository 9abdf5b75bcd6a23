"""`python -m services.runtime.metrics_page`: docs/metrics.md, made from the catalogue."""

from __future__ import annotations

from services.runtime.metrics import CATALOGUE, SECONDS, Metric

_HEAD = """# Metrics

Every process of ours answers `GET /metrics` on its HTTP port in Prometheus's text format; the
broker and the agents are somebody else's. A stack of `windtunnel up` lists its processes' addresses
in `prometheus-targets.json` of its directory, for `file_sd_configs`;
[deploy/prometheus](../deploy/prometheus) has the configuration, recording rules and alerts, and
[runbook.md](runbook.md) says what to do about each alert.

Each process counts for itself and shares nothing with another, so sums are taken over instances;
what Beam's workers count comes back with their job and is added where the job was started. What
counts sessions, turns, calls, scores, rows or verdicts counts after the broker or the store has
acknowledged them: added up over instances, it is what is on the topics, but for what a process that
was killed had counted since its last scrape, and for what was written twice after that. No label
grows with runs or sessions: what is asked of one run is asked of the store (`windtunnel sql`,
`windtunnel report`). Label values that are known beforehand are there from the start, at 0.

Counters end in `_total`. Histograms are in seconds, with the buckets
{buckets}.
Besides these there are the `process_` metrics of every Prometheus client: CPU, memory, open files.

This page is made from `services/runtime/metrics.py` by `make schemas`.
"""


def page() -> str:
    """The page's text."""
    buckets = ", ".join(f"{bound:g}" for bound in SECONDS)
    rows = sorted(CATALOGUE, key=lambda metric: metric.name)
    return _HEAD.format(buckets=buckets) + "".join(map(_entry, rows))


def _entry(metric: Metric) -> str:
    labels = ", ".join(_label(metric, at) for at in range(len(metric.labels))) or "none"
    return (
        f"\n## `{metric.name}`\n\n{metric.meaning}\n\n"
        f"- kind: {metric.kind}\n- from: {', '.join(metric.by)}\n- labels: {labels}\n"
        f"- when it looks wrong: {metric.when_wrong}\n"
    )


def _label(metric: Metric, at: int) -> str:
    known = dict.fromkeys(row[at] for rows in metric.by.values() for row in rows if row[at])
    return f"`{metric.labels[at]}`" + (f" ({', '.join(known)})" if known else "")


if __name__ == "__main__":
    print(page(), end="")
