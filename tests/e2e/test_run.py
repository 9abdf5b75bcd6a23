"""D01, D04-D06: a message starts a run, a message carries the verdict, SQL answers questions."""

from __future__ import annotations

import json
from dataclasses import asdict

import httpx
import pytest

from schemas.codec import Codec
from schemas.registry import DeadLetter
from schemas.runs import RunRequest
from schemas.scenario import Category
from schemas.topics import ALL, DEAD_LETTERS
from services.runtime.bus.records import Outgoing
from tests.support.running_stack import AGENT_TOKEN, RunningStack, wait_until

pytestmark = pytest.mark.timeout(240)
FEW = ("happy-order-status", "failure-order-lookup-outage", "long-address-then-delivery")


@pytest.mark.req("D01", "D03", "D04", "D05", "V06", "V09")
def test_a_message_starts_a_run_and_the_verdict_comes_on_the_status_topic(
    stack: RunningStack,
) -> None:
    status = stack.run(
        RunRequest(run_id="whole", suite="order-support", agent_id="good", baseline="none", seed=5)
    )
    assert (status.state, status.errors, status.lost) == ("aggregated", (), 0)
    assert status.ended == status.scored == status.planned
    verdict = stack.verdict("whole")
    assert verdict.verdict == "PASS", verdict.reasons
    assert set(status.categories) == {str(category) for category in Category}
    assert verdict.passed == verdict.sessions == status.planned
    assert verdict.incomplete_categories == ()
    # Every failure that was specified was injected, and is in the trajectory.
    injected = [
        event.tool_called.injection.kind
        for (scenario, _), events in stack.trajectories("whole").items()
        for event in events
        if event.tool_called and event.tool_called.injection
    ]
    kinds = {
        "timeout", "schema_mismatch", "outage", "malformed", "content", "rate_limit", "partial",
        "slow",
    }  # fmt: skip
    assert set(injected) == kinds


@pytest.mark.req("D06")
def test_every_event_of_a_session_can_be_read_back_with_sql(stack: RunningStack) -> None:
    stack.run(
        RunRequest(
            run_id="sql", suite="order-support", agent_id="good", baseline="none", scenarios=FEW
        )
    )
    wait_until(lambda: (s := stack.status("sql")) and s.stored, 180, "rows in the store")
    for (scenario, _), events in stack.trajectories("sql").items():
        answer = stack.cli(
            "sql", "--json",
            "SELECT event_id, payload_json FROM v_trajectory_events "
            f"WHERE session_id = '{events[0].session_id}' ORDER BY position",
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        rows = json.loads(answer.stdout)["rows"]
        assert [row["event_id"] for row in rows] == [event.event_id for event in events], scenario
        for row, event in zip(rows, events, strict=True):
            body = json.loads(json.dumps(asdict(getattr(event, event.kind))))
            assert json.loads(row["payload_json"]) == body
    answer = stack.cli("sql", "--json", "SELECT count() AS n FROM v_scores WHERE run_id = 'sql'")
    count = json.loads(answer.stdout)["rows"][0]["n"]
    assert count == sum(len(score.dimensions) for score in stack.scores("sql").values())


def rejected(stack: RunningStack, request: RunRequest) -> str:
    status = stack.run(request, timeout_s=120)
    assert status.state == "rejected"
    verdict = stack.verdict(request.run_id)
    assert verdict.verdict == "INCONCLUSIVE"  # a waiting deploy gets an answer
    return " ".join(status.errors)


def test_bad_requests_are_answered_on_the_status_topic(stack: RunningStack) -> None:
    nowhere = RunRequest(run_id="bad-1", suite="no-such-suite", agent_id="no-such-agent")
    errors = rejected(stack, nowhere)
    assert "no-such-suite" in errors
    assert "no-such-agent" in errors
    assert "windtunnel" in errors
    wrong = RunRequest(run_id="bad-2", suite="order-support", agent_id="good", trials=0)
    assert "trials is 0" in rejected(stack, wrong)
    unknown = RunRequest(
        run_id="bad-3", suite="order-support", agent_id="good", scenarios=("nope",)
    )
    assert "'nope'" in rejected(stack, unknown)


def test_an_unreachable_agent_is_said_before_a_session_starts(stack: RunningStack) -> None:
    from deploy.demo.register import agent_registration
    from schemas.topics import AGENTS
    from services.runtime.service import Publication

    gone = agent_registration("gone", "order-support", "http://127.0.0.1:9/dispatch", "good")
    stack.publish(Publication(AGENTS, "gone", gone))
    errors = rejected(stack, RunRequest(run_id="gone", suite="order-support", agent_id="gone"))
    assert "127.0.0.1:9" in errors
    assert stack.trajectories("gone") == {}


def test_a_poisoned_record_on_every_topic_stops_nobody(stack: RunningStack) -> None:
    before = {name: stack.pids(name) for name in ("dispatcher", "judge", "gate", "tool_proxy")}
    buried = len(stack.records(DEAD_LETTERS, DeadLetter))
    unframed = b"not avro at all"
    truncated = Codec().encode(RunRequest(run_id="x", suite="s", agent_id="a"))[:-3]
    stack.append(
        [
            Outgoing(topic.full_name, f"poison-{n}", value)
            for topic in ALL
            for n, value in enumerate((unframed, truncated))
        ]
    )
    status = stack.run(
        RunRequest(
            run_id="after-poison", suite="order-support", agent_id="good", baseline="none",
            scenarios=FEW,
        )
    )  # fmt: skip
    assert status.state == "aggregated"
    assert stack.verdict("after-poison").verdict == "PASS"
    assert {name: stack.pids(name) for name in before} == before
    letters = []
    for incoming in stack.read(DEAD_LETTERS):
        if not incoming.key.startswith("poison-") or incoming.value not in (unframed, truncated):
            letters.append(stack.codec.decode(DeadLetter, incoming.value))
    assert len(letters) > buried
    assert {letter.topic for letter in letters} >= {
        topic.full_name for topic in ALL if topic.name != "dead-letters"
    }
    # The author of a run request looks at the status topic.
    answer = wait_until(lambda: stack.status("poison-0"), 90, "the answer to a poisoned request")
    assert answer.state == "rejected"
    assert "single-object encoding" in answer.errors[0]


@pytest.mark.req("D07")
def test_every_process_tells_its_health_and_its_metrics(stack: RunningStack) -> None:
    for name, url in stack.endpoints.items():
        assert httpx.get(f"{url}/healthz").status_code == 200, name
        assert httpx.get(f"{url}/readyz").status_code == 200, name
        assert "windtunnel_ready 1.0" in httpx.get(f"{url}/metrics").text, name


@pytest.mark.req("R18", "R22")
def test_no_secret_is_in_any_topic_table_metric_or_log(stack: RunningStack) -> None:
    stack.run(
        RunRequest(
            run_id="secrets", suite="order-support", agent_id="good", baseline="none",
            scenarios=FEW,
        )
    )  # fmt: skip
    secret = (stack.directory / "token-secret").read_text().strip()
    canaries = [AGENT_TOKEN.encode(), secret.encode(), b"gAAAAA"]  # the last starts every token
    for topic in ALL:
        for incoming in stack.read(topic):
            for canary in canaries:
                assert canary not in incoming.value, topic.name
    logs = stack.logs().encode()
    for canary in canaries:
        assert canary not in logs
