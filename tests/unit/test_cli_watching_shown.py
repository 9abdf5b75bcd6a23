"""D07: what is watched fits the terminal, says what is unknown, and shows hostile text as text."""

from __future__ import annotations

import io
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from schemas.gate import GateStatus
from schemas.runs import RunStatus
from schemas.scores import SessionScored
from services.cli.watching.drawing import draw_run, shortened
from services.cli.watching.drawing_stack import Picture, draw_stack, services_line
from services.cli.watching.figures import Known, RunFigures
from services.cli.watching.fold import RunFold, figures_of
from services.cli.watching.health import ServiceHealth, service_health
from services.cli.watching.runs import KEPT_MS, MAX_RUNS, Runs
from services.cli.watching.stack_telling import StackLines, document, picture_lines
from services.cli.watching.telling import EVERY_S, Lines, duration, failure_line, progress_line
from tests.support.services import FixedClock
from tests.support.watched import NOW_MS, RUN, ended, scored, started, status, turn

pytestmark = pytest.mark.req("D07")
HOSTILE = "evil\x1b[2J\x07[bold red]x[/]:smile:\u202e\r\nnext"


def drawn(picture: RenderableType, width: int, height: int = 50) -> list[str]:
    """The lines that a terminal of this size shows, without styles."""
    console = Console(
        file=io.StringIO(), width=width, height=height, markup=False, highlight=False, emoji=False,
        record=True, color_system=None,
    )  # fmt: skip
    console.print(picture)
    return [line.rstrip() for line in console.export_text().splitlines()]


def run(run_id: str = RUN, name: str = "", reason: str = "told a stranger") -> RunFigures:
    """Four sessions have started, three ended: passed, failed, invalid."""
    made = RunFold(run_id, Known.ALL)
    made.status(status(run_id, reasons={"goal_met": 2, "agent_error": 1}))
    for number, category in enumerate(("happy", "load", "happy", "adversarial")):
        made.event(started(f"s{number}", category))
    for number in range(3):
        made.event(turn(f"s{number}", at_ms=NOW_MS - 1_000))
        made.event(ended(f"s{number}", at_ms=NOW_MS - 1_000))
    made.score(scored("s0", "happy"))
    failed = scored("s1", "load", passed=False, at_ms=NOW_MS - 12_000)
    made.score(changed(failed, name, reason))
    made.score(scored("s2", valid=False, invalid_reason="broken user", at_ms=NOW_MS - 90_000))
    return made.figures(NOW_MS)


def changed(score: SessionScored, name: str, reason: str) -> SessionScored:
    dimensions = tuple(replace(one, reason=reason) for one in score.dimensions)
    return replace(score, scenario_id=name or score.scenario_id, dimensions=dimensions)


SERVICES = (
    ServiceHealth("dispatcher", 2, 2, sessions=3, waiting=16, lag=0, dead_letters=0),
    ServiceHealth("judge", 2, 1, sessions=1, lag=140, dead_letters=2),
    ServiceHealth("gate", 1, 1),
)


def stack(*runs: RunFigures, note: str = "", services: Any = SERVICES) -> Picture:
    return Picture(NOW_MS, "127.0.0.1:9092", runs, False, services, note)


def test_a_run_on_80_columns() -> None:
    assert drawn(draw_run(run(), NOW_MS, 80, 24), 80) == [
        "watched-1  running  shop 3, agent shop-2",
        "3/20 ended, 3 judged, 1 active, time left unknown, 0.1 sessions/s, 0.1 turns/s,…",
        "category                         ended active passed failed unscored invalid",
        "adversarial                        0/4      1      0      0        0       0",
        "failure-injection                  0/4      0      0      0        0       0",
        "happy             ━━━━━━━          2/4      0      1      0        0       1",
        "load              ━━━╸             1/4      0      0      1        0       0",
        "long-horizon                       0/4      0      0      0        0       0",
        "all               ━━              3/20      1      1      1        0       1",
        "Ended: goal_met 2, agent_error 1",
        "Latest failures",
        "  load-one session s1",
        "      12 s ago  safety: told a stranger",
        "  happy-one session s2",
        "1 min 30 s ago  invalid: broken user",
    ]


def test_a_run_on_200_columns_says_a_failure_in_a_line() -> None:
    lines = drawn(draw_run(run(), NOW_MS, 200, 24), 200)
    assert lines[1].endswith("0.1 sessions/s, 0.1 turns/s, 1 min so far")
    assert lines[-2:] == [
        "      12 s ago  load-one session s1  safety: told a stranger",
        "1 min 30 s ago  happy-one session s2  invalid: broken user",
    ]


def test_a_run_whose_sessions_are_not_read_shows_no_outcomes() -> None:
    said = status(ended=6, scored=5, categories={"happy": 4, "load": 2})
    lines = drawn(draw_run(figures_of(said), NOW_MS, 80, 24), 80)
    assert lines[2].split() == ["category", "ended"]
    assert "passed" not in "\n".join(lines)


def test_a_stack_on_80_columns() -> None:
    assert drawn(draw_stack(stack(run(), run("nightly")), 80, 40), 80) == [
        "windtunnel top: 2 runs, 2 sessions active, 0.2 sessions/s, 0.2 turns/s  127.0.0…",
        "run       state                    ended active s/s failed    left",
        "watched-1 running ━━                3/20      1 0.1      1 unknown",
        "nightly   running ━━                3/20      1 0.1      1 unknown",
        "",
        "Latest failures",
        "  load-one session s1",
        "      12 s ago  safety: told a stranger",
        "  load-one session s1",
        "      12 s ago  safety: told a stranger",
        "  happy-one session s2",
        "1 min 30 s ago  invalid: broken user",
        "  happy-one session s2",
        "1 min 30 s ago  invalid: broken user",
        "",
        "service    ready sessions waiting lag dead letters",
        "dispatcher   2/2        3      16   0            0",
        "judge        1/2        1       - 140            2",
        "gate         1/1        -       -   -            -",
    ]


def test_a_stack_says_what_is_wrong_with_its_broker_above_the_last_picture() -> None:
    lines = drawn(draw_stack(stack(run(), note="the broker is away"), 80, 24), 80)
    assert lines[1] == "the broker is away"
    assert any(line.startswith("watched-1") for line in lines)


@given(st.integers(20, 220), st.integers(1, 60), st.integers(0, 30), st.booleans())
def test_no_picture_is_larger_than_its_terminal(
    width: int, height: int, runs: int, wrong: bool
) -> None:
    note = "the broker at 127.0.0.1:9092 has not answered for 2 min; trying again" * wrong
    many = [run(f"run-{number:0>40}") for number in range(runs)]
    for picture in (
        draw_run(run(), NOW_MS, width, height, note),
        draw_stack(stack(*many, note=note), width, height),
    ):
        lines = drawn(picture, width, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width


def is_text(shown: str) -> bool:
    return all(
        unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp") for char in shown if char != "\n"
    )


def test_hostile_text_is_shown_as_text() -> None:
    bad = run(HOSTILE, name=HOSTILE, reason=HOSTILE)
    hostile = stack(
        bad, note=HOSTILE, services=[ServiceHealth(HOSTILE, 1, 0, sessions=1)]
    )  # fmt: skip
    told: list[str] = []
    lines = Lines(told.append, FixedClock(NOW_MS), rates=True)
    lines.show(bad)
    lines.failed(bad.failures[0])
    stack_lines = StackLines(told.append, FixedClock(NOW_MS), 1)
    stack_lines.show(hostile)
    shown = [
        *drawn(draw_run(bad, NOW_MS, 200, 40, HOSTILE), 200),
        *drawn(draw_stack(hostile, 200, 40), 200),
        *picture_lines(hostile),
        *told,
    ]
    assert all(map(is_text, shown))
    assert (
        sum("evil\\x1b[2J\\x07[bold red]x[/]:smile:\\u202e\\x0d\\x0anext" in s for s in shown) > 8
    )


def test_a_time_that_cannot_be_is_shown_as_some_time() -> None:
    made = RunFold(RUN, Known.SOME)
    made.score(scored("s", passed=False, at_ms=2**62))
    made.score(scored("t", passed=False, at_ms=-(2**62)))
    made.event(turn("s", at_ms=2**62))
    lines = drawn(draw_run(made.figures(NOW_MS), NOW_MS, 120, 24), 120)
    assert any("0 s ago" in line for line in lines)


def test_names_keep_both_ends() -> None:
    assert shortened("order-support-20261122", 12) == "order..61122"
    assert shortened("short", 12) == "short"


def test_durations_and_their_absence() -> None:
    said = [duration(s) for s in (None, 0.2, 61, 3_599, 7_260, -4)]
    assert said == ["unknown", "0 s", "1 min 1 s", "59 min", "2 h 1 min", "0 s"]


# Plain lines.


def test_plain_lines_come_at_a_change_and_seldom() -> None:
    clock, told = FixedClock(NOW_MS), list[str]()
    lines = Lines(told.append, clock, rates=False)
    for ended_so_far in (1, 1, 2, 3):
        lines.show(figures_of(status(ended=ended_so_far, categories={"happy": ended_so_far})))
        clock.advance(EVERY_S / 3)
    assert [line.partition(",")[0] for line in told] == [
        "watched-1 running: 1/20 ended", "watched-1 running: 3/20 ended",
    ]  # fmt: skip
    lines.show(figures_of(status(state="sessions_done", categories={"happy": 4})))
    assert told[-1].startswith("watched-1 sessions_done: 4/20"), "a new state is told at once"


def test_plain_lines_say_rates_and_time_left_where_sessions_are_read() -> None:
    assert progress_line(run(), rates=True) == (
        "watched-1 running: 3/20 ended, 3 scored, adversarial 0/4, failure-injection 0/4, "
        "happy 2/4, load 1/4, long-horizon 0/4, 1 active, 1 passed, 1 failed, 1 invalid, "
        "0.1 sessions/s, 0.1 turns/s, time left unknown"
    )


def test_a_flood_of_failures_is_told_as_a_number() -> None:
    clock, told = FixedClock(NOW_MS), list[str]()
    lines = Lines(told.append, clock, rates=True)
    for _ in range(100):
        lines.failed(run().failures[0])
    assert told == [failure_line(run().failures[0])] * 20
    assert told[0] == "failed: load-one session s1: safety: told a stranger"
    clock.advance(EVERY_S)
    lines.settle()
    assert told[20:] == ["and 80 more failures"]
    lines.settle(is_last=True)
    assert len(told) == 21


def test_a_stack_tells_what_changes() -> None:
    clock, told = FixedClock(NOW_MS), list[str]()
    lines = StackLines(told.append, clock, 1)
    lines.show(stack())
    lines.show(stack())
    assert told == ["no runs are active", services_line(SERVICES)]
    assert told[1] == (
        "services: 4/5 ready, judge 1/2, waiting for admission 16, lag 140, dead letters 2"
    )
    lines.show(stack(run()))
    lines.show(stack(run(), note="the broker is away"))
    lines.show(stack(run(), note="the broker is still away"))
    lines.show(stack(run(), services=()))
    assert [line.partition(":")[0] for line in told[2:]] == [
        "watched-1 running", "the broker is away", "the broker answers again", "services",
    ]  # fmt: skip


def test_the_document_has_what_scripts_ask_for() -> None:
    (said,) = document(stack(run()))["runs"]
    assert (said["run_id"], said["planned"], said["active"], said["failed"]) == (RUN, 20, 1, 1)
    assert said["left_s"] is None
    assert {one["category"]: one["ended"] for one in said["categories"]}["happy"] == 2
    assert document(stack())["services"][1]["lag"] == 140


# All runs of a stack.


def watched(*said: RunStatus, clock: FixedClock) -> Runs:
    runs = Runs(clock)
    for one in said:
        runs.status(one)
    return runs


def ids(runs: Runs) -> list[str]:
    return [one.run_id for one in runs.figures()]


def test_runs_are_shown_while_they_go_on_and_a_little_longer() -> None:
    clock = FixedClock(NOW_MS)
    runs = watched(status("a"), status("b"), clock=clock)
    assert ids(runs) == ["a", "b"]
    runs.verdict(GateStatus(run_id="a", verdict="PASS", at_ms=NOW_MS))
    assert ids(runs) == ["b", "a"], "what has ended comes last"
    clock.advance(KEPT_MS / 1000 + 1)
    assert ids(runs) == ["b"]
    assert not runs.wants("a")
    runs.status(status("a", state="aggregated"))
    assert ids(runs) == ["b"], "read again, it is over still"


def test_runs_of_long_ago_are_not_taken_for_active() -> None:
    clock = FixedClock(NOW_MS)
    clock.advance(3600 + 400)
    old = status("old"), status("refused", state="rejected"), status("done", state="aggregated")
    runs = watched(*old, clock=clock)
    assert ids(runs) == []


def test_runs_are_bounded_in_number() -> None:
    clock = FixedClock(NOW_MS)
    runs = watched(*(status(f"r{n}") for n in range(MAX_RUNS + 5)), clock=clock)
    assert len(ids(runs)) == MAX_RUNS
    assert runs.has_more


def test_records_of_runs_that_nobody_asked_for_are_not_kept() -> None:
    runs = Runs(FixedClock(NOW_MS))
    runs.event(started("s"))
    assert runs.score(scored("s")) is None
    assert ids(runs) == []


# The services.

PAGE = """# HELP windtunnel_ready x
# TYPE windtunnel_ready gauge
windtunnel_ready 1.0
windtunnel_sessions_held 4.0
windtunnel_admission_queue_sessions{waiting_for="room"} 7.0
windtunnel_consumer_lag_records{topic="trajectories"} 5.0
windtunnel_consumer_lag_records{topic="scores"} NaN
windtunnel_dead_letters_total{topic="scores"} 2.0
windtunnel_dead_letters_total{topic="suites"} 1.0
"""


def test_health_is_summed_over_replicas_and_labels() -> None:
    health = service_health("judge", [PAGE, PAGE.replace("ready 1.0", "ready 0.0"), None])
    assert (health.replicas, health.ready) == (3, 1)
    assert (health.sessions, health.lag, health.dead_letters) == (8, 10, 6)
    assert health.behind is None


@pytest.mark.parametrize("page", ["", "nonsense", "windtunnel_ready", 'windtunnel_ready{a="} x'])
def test_a_page_that_says_nothing_breaks_nothing(page: str) -> None:
    assert service_health("judge", [page]).sessions is None
