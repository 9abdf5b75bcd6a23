"""D07: the metrics' catalogue, its page, and the rules that are written over it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.runtime.metrics import CATALOGUE, Metrics
from services.runtime.metrics_page import page
from tests.support.live import ROOT

pytestmark = pytest.mark.req("D07")
PROMETHEUS = ROOT / "deploy" / "prometheus"
UNITS = ("_seconds", "_records", "_usd", "_bytes")
OF_TARGETS = {"job", "instance", "service", "replica"}
"""What Prometheus adds itself: a label of ours with such a name would be moved out of the way."""


def rules(file: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((PROMETHEUS / file).read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_the_page_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), "run `make schemas`"


def test_names_follow_prometheus() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in CATALOGUE:
        assert re.fullmatch(r"windtunnel_[a-z][a-z_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        if metric.kind == "histogram":
            assert metric.name.endswith(UNITS), metric.name
        assert metric.meaning.endswith("."), metric.name
        assert metric.when_wrong.endswith((".", "?")), metric.name


def test_no_label_grows_with_runs_or_sessions() -> None:
    growing = {"run", "run_id", "session", "session_id", "scenario", "scenario_id", "agent_id"}
    assert not [metric.name for metric in CATALOGUE if growing & set(metric.labels)]


def test_no_label_is_named_like_one_of_the_targets() -> None:
    assert not [metric.name for metric in CATALOGUE if OF_TARGETS & set(metric.labels)]


def test_every_service_shows_what_the_catalogue_says_from_the_start() -> None:
    services = {service for metric in CATALOGUE for service in metric.by}
    for service in services:
        metrics = Metrics()
        metrics.begin(CATALOGUE, service)
        families = {family.name: family for family in metrics.registry.collect()}
        for metric in CATALOGUE:
            found = families.get(metric.name.removesuffix("_total"))
            if not metric.by.get(service):
                assert found is None, (service, metric.name)
                continue
            assert found is not None, (service, metric.name)
            assert all(sample.value == 0 for sample in found.samples), metric.name
            shown = {tuple(s.labels.get(name) for name in metric.labels) for s in found.samples}
            assert shown == set(metric.by[service]), (service, metric.name)


def test_what_has_no_labels_is_there_from_the_start() -> None:
    for metric in CATALOGUE:
        assert metric.by, metric.name
        if not metric.labels:
            assert set(metric.by.values()) == {((),)}, metric.name


def test_rules_ask_for_metrics_and_labels_that_there_are() -> None:
    known = {metric.name: metric for metric in CATALOGUE}
    recorded = {rule["record"] for rule in rules("recording.yml")}
    for rule in rules("recording.yml") + rules("alerts.yml"):
        expression = rule["expr"]
        for name in recorded:
            expression = expression.replace(name, "")
        asked = re.findall(r"\b(windtunnel_[a-z_]+)(?:\{([^}]*)\})?", expression)
        assert asked or rule["expr"] != expression or rule["expr"].startswith("up"), rule
        for name, matchers in asked:
            metric = known.get(re.sub(r"_(bucket|sum|count)$", "", name)) or known.get(name)
            assert metric is not None, f"{rule}: {name}"
            for label in re.findall(r"(\w+)[=!]", matchers):
                assert label in metric.labels, f"{rule}: {name} has no label {label}"


def test_every_alert_has_its_part_of_the_runbook_and_a_test() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    tested = yaml.safe_load((PROMETHEUS / "tests" / "alerts.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tested
        for case in test.get("alert_rule_test", ())
        if case["exp_alerts"]
    }
    alerts = {rule["alert"]: rule for rule in rules("alerts.yml")}
    assert fired == set(alerts)
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == list(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")
