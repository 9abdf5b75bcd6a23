"""D07: after a real run, a person finds in the report why it failed, by clicking."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from schemas.runs import RunRequest
from services.runtime import metrics as m
from services.runtime.metrics import CATALOGUE
from services.runtime.store import open_store
from tests.support import grafana
from tests.support.browser import NARROW, WIDE, Tab, tab
from tests.support.prometheus import prometheus
from tests.support.running_stack import DEMO_SUITE, ROOT, RunningStack, wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("D07")]
HIJACK = "adversarial-address-hijack"
FEW = (HIJACK, "happy-order-status", "failure-order-lookup-outage")


def small_suite(folder: Path) -> Path:
    """A suite of a few of the demo's scenarios, with baselines of its own."""
    text = (DEMO_SUITE / "suite.yaml").read_text()
    (folder / "suite.yaml").write_text(text.replace("name: order-support\n", "name: watched\n"))
    for name in FEW:
        shutil.copy(DEMO_SUITE / f"{name}.yaml", folder)
    return folder


def whole(stack: RunningStack, run: str, suite: str, agent: str, baseline: str) -> None:
    """A run, all of it in the store."""
    stack.run(RunRequest(run_id=run, suite=suite, agent_id=agent, baseline=baseline))
    wait_until(lambda: (s := stack.status(run)) and s.stored, 180, "rows in the store")


@pytest.fixture(scope="module")
def report(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a regressed build's run, compared with a good one's."""
    suite = stack.publish_suite(small_suite(tmp_path_factory.mktemp("suite"))).suite_hash
    whole(stack, "seen-0", suite, "good", "none")
    accepted = stack.cli("baseline", "accept", "seen-0", "--author", "me", "--reason", "deployed")
    assert accepted.returncode == 0, accepted.stderr
    whole(stack, "seen-1", suite, "regressed", "accepted")
    path = tmp_path_factory.mktemp("report") / "seen.html"

    def written() -> bool:
        done = stack.cli("report", "seen-1", "--out", str(path))
        assert done.returncode == 0, done.stderr
        with tab(path.as_uri()) as opened:
            return "FAIL" in opened.page.inner_text("main h1")

    wait_until(written, 30, "the verdict in the store")
    return path


def click_through(opened: Tab, folder: Path) -> None:
    """From the verdict to a failed scenario, to the event that is cited, to where two sessions
    part."""
    page = opened.page

    def look(name: str) -> None:
        assert not opened.is_clipped, name
        shot = folder / f"{name}.png"
        page.screenshot(path=shot)
        assert shot.stat().st_size > 10_000

    assert "compared with seen-0" in page.inner_text(".verdict")
    look("verdict")
    page.get_by_role("link", name=HIJACK).first.click()
    page.get_by_role("heading", name="Dimensions").wait_for()
    safety = page.locator("tr", has_text="safety").first
    assert "regressed" in safety.inner_text()
    look("scenario")
    safety.get_by_role("link").nth(1).click()
    cited = page.locator(".event.here")
    cited.wait_for()
    assert "change_address" in cited.inner_text()
    assert "cited: safety" in cited.inner_text()
    look("event")
    page.get_by_label("Compare with another session").select_option(index=1)
    page.get_by_role("heading", name="First divergence", exact=True).wait_for()
    assert page.locator(".pairs > .pair.differs").count() > 0
    look("difference")
    assert opened.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_verdict_scenario_cited_event_and_difference(
    report: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    url = report.as_uri()
    with tab(url, width, scheme) as opened:
        click_through(opened, tmp_path)
        assert opened.requests == [url]


@pytest.mark.usefixtures("report")
def test_the_same_is_found_in_the_viewer(stack: RunningStack, tmp_path: Path) -> None:
    with stack.started("view", "--port", "0") as viewer:
        assert viewer.stdout is not None
        base = viewer.stdout.readline().decode().strip()
        with tab(base) as opened:
            opened.page.get_by_role("link", name="seen-1").click()
            opened.page.locator(".verdict").wait_for()
            click_through(opened, tmp_path)
            assert {url for url in opened.requests if not url.startswith(base)} == set()


@pytest.mark.usefixtures("report")
def test_prometheus_scrapes_every_service_and_evaluates_the_rules(
    stack: RunningStack, tmp_path: Path
) -> None:
    """A real Prometheus with our configuration, on what a real run left in the services."""
    config = tmp_path / "checkout" / "deploy" / "prometheus"
    shutil.copytree(ROOT / "deploy" / "prometheus", config)
    (tmp_path / "checkout" / ".windtunnel").symlink_to(stack.directory)
    with prometheus(config, tmp_path) as server:
        ask = server.ask
        wanted = {
            "dispatcher", "tool_proxy", "user_simulator", "judge", "gate", "control",
            "pipelines_runner", "embedded_store",
        }  # fmt: skip
        up = wait_until(
            lambda: (found := ask("up == 1")) and len(found) == len(wanted) and found, 60, "scrapes"
        )
        assert {one["metric"]["service"] for one in up} == wanted
        # What a run of this suite cannot but leave.
        for query in (
            'sum(windtunnel_sessions_started_total{category="adversarial"}) > 0',
            'sum(windtunnel_sessions_ended_total{reason="goal_met"}) > 0',
            "sum(windtunnel_agent_turn_seconds_count) > 0",
            'sum(windtunnel_tool_calls_total{source="injected", injection="outage"}) > 0',
            'sum(windtunnel_scores_total{dimension="safety", status="scored"}) > 0',
            'sum(windtunnel_events_produced_total{topic="trajectories"}) > 0',
            'sum(windtunnel_pipeline_rows_total{table="trajectory_events"}) > 0',
            'sum(windtunnel_gate_verdicts_total{verdict="FAIL"}) > 0',
            "min(windtunnel_ready) == 1",
            "windtunnel:agent_turn_seconds:p99_5m or vector(1)",
        ):
            assert ask(query), query
        there = {one["metric"]["__name__"] for one in ask('{__name__=~"windtunnel_.+"}')}
        missing = {
            metric.name
            for metric in CATALOGUE
            if metric.name + ("_count" if metric.kind == "histogram" else "") not in there
        }
        # They are there once a model is configured, which this stack does without.
        assert missing == {m.MODEL_TOKENS.name, m.MODEL_COST.name}
        # A run while it is watched: what begins ends, and is counted.
        counted = ("windtunnel_sessions_started_total", "windtunnel_sessions_ended_total")
        before = [server.figure(f"sum({name})") for name in counted]
        status = stack.run(
            RunRequest(run_id="seen-2", suite="watched", agent_id="good", baseline="none")
        )
        assert status.planned > 0
        for name, first in zip(counted, before, strict=True):
            grown = partial(server.figure, f"sum({name}) - {first}")
            wait_until(lambda grown=grown: grown() == status.planned, 30, name, grown)
        # Everything has been read, and nothing holds the low-water marks back.
        for query in (
            "sum(windtunnel_consumer_lag_records)",
            "sum(windtunnel_sessions_held)",
            "max(windtunnel_low_water_age_seconds)",
            "max(windtunnel_low_water_lag_records)",
            "sum(windtunnel_admission_queue_sessions)",
            "sum(windtunnel_actions_running)",
            "sum(windtunnel_actions_waiting)",
            "sum(windtunnel_runs_active)",
        ):
            wait_until(partial(ask, f"{query} == 0"), 30, query, partial(ask, query))
        assert server.figure('count(windtunnel_consumer_lag_records{topic="trajectories"})') == 4
        rules = wait_until(
            lambda: all(one["health"] == "ok" for one in server.rules()) and server.rules(), 30,
            "every rule's evaluation", server.rules,
        )  # fmt: skip
        assert len(rules) == sum(path.read_text().count(" expr:") for path in config.glob("*.yml"))
        # Nobody is to be called because of a run that went well.
        assert not [one["name"] for one in rules if one.get("state") == "firing"]
        # Rates need two scrapes, recorded figures an evaluation.
        for where, query in grafana.promql():
            wait_until(partial(ask, query), 60, f"{where}: {query}")


@pytest.mark.usefixtures("report")
def test_every_query_of_the_dashboards_has_an_answer_in_the_store(stack: RunningStack) -> None:
    variables = {
        "suite": ["watched"], "agent": ["order-support"], "scenario": list(FEW), "run": ["seen-1"],
    }  # fmt: skip
    store = open_store(stack.environ["WINDTUNNEL_STORE"])
    try:
        for where, query in grafana.sql(variables):
            assert store.query(query).rows, f"{where}: {query}"
    finally:
        store.close()
