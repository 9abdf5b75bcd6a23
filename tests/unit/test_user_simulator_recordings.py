"""V02, V04, V16: where recordings come from, and what a session tells of one that was left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.briefs import UserBrief, judge_brief
from schemas.errors import InvalidDocument
from schemas.latency import Latency
from schemas.loader import parse_scenario
from schemas.scenario import Category, Scenario
from schemas.scores import Dimension
from schemas.trajectory import TrajectoryEvent
from schemas.user import Persona, RecordedLine
from services.cli.app import app
from services.cli.lint.showing import shown
from services.cli.recordings import scenarios
from services.judge.evaluators.measures import evaluate_all
from services.judge.trajectory import read
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import USER, UserSide, perform
from services.user_simulator.pacing import pause_ms
from services.user_simulator.replay import ReplaySimulator
from services.user_simulator.simulator import AgentSaid, UserSaid
from tests.support.services import FixedClock
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V02", "V04", "V16")

JUDGE = judge_brief(Scenario(id="s", name="s"))
LOG = [
    {"role": "system", "content": "You are a shop's assistant."},
    {"role": "user", "content": "my kettle leaks"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "{}"},
    {"role": "assistant", "content": [{"type": "text", "text": "What is your order number?"}]},
    {"role": "user", "content": "its ORD-4711"},
    {"role": "assistant", "content": "A refund has been issued."},
    {"role": "user", "content": "great, bye", "ending": "goal_met"},
]
SPOKEN = [
    ("user", "my kettle leaks"), ("agent", "What is your order number?"), ("user", "its ORD-4711"),
    ("agent", "A refund has been issued."), ("user", "great, bye"),
]  # fmt: skip


def spoken(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(line["who"], line["text"]) for line in document["user"]["recording"]]


@pytest.mark.parametrize("log", [LOG, {"id": 7, "messages": LOG}])
def test_a_chat_log_becomes_a_scenario(log: object) -> None:
    (document,) = scenarios(json.dumps(log), "logs/chat.json", "A leaking kettle", "happy")
    assert spoken(document) == SPOKEN
    assert document["user"]["recording"][-1]["ending"] == "goal_met"
    assert document["origin"] == "recorded in chat.json"


def test_lines_of_json_become_a_scenario_each() -> None:
    rows = [json.dumps(LOG), "", json.dumps({"messages": LOG[:2]})]
    first, second = scenarios("\n".join(rows), "chats.jsonl", "Kettles", "adversarial")
    assert (first["name"], second["name"]) == ("Kettles 1", "Kettles 2")
    assert second["origin"] == "recorded in chats.jsonl, conversation 2"
    assert len(spoken(second)) == 1


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("[]", 1, "found none"),
        ("", None, "expected a conversation"),
        ("[1]\n{", 2, "neither JSON nor JSON lines"),
        ('[{"role": "user", "content": "hi"}]\n[{"role": "boss", "content": "hi"}]', 2, "'boss'"),
        ('[{"role": "assistant", "content": "hi"}]', 1, "a line of the user's"),
        ('[{"role": "assistant", "content": "hi", "ending": "gave_up"}]', 1, "only a line of"),
        ('{"role": "user"}', 1, "expected a list of messages"),
    ],
)
def test_what_cannot_be_said_again_is_told_with_its_line(
    text: str, line: int | None, why: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        scenarios(text, "chats.jsonl", "Kettles", "happy")
    problem = caught.value.problems[-1]
    assert problem.line == line
    assert why in problem.message


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scenarios", "import-chat", *arguments])
    return result.exit_code, result.output


def test_the_command_writes_scenarios_that_are_valid_and_replaces_none(tmp_path: Path) -> None:
    log = tmp_path / "chat.json"
    log.write_text(json.dumps(LOG))
    arguments = (str(log), "--name", "A leaking kettle", "--out", str(tmp_path))
    code, said = run(*arguments)
    assert code == 0
    file = tmp_path / "a-leaking-kettle.yaml"
    assert str(file) in said.replace("\n", "")
    scenario = parse_scenario(file.read_text(), file.name)
    assert scenario.user is not None
    assert [(one.who, one.text) for one in scenario.user.recording] == SPOKEN
    assert run(*arguments)[0] == 2
    assert run(*arguments, "--category", "load")[0] == 2


def test_recordings_pauses_and_load_are_shown() -> None:
    text = shown(
        Scenario.model_validate({
            "id": "s", "name": "s", "category": "load",
            "user": {
                "recording": scenarios(json.dumps(LOG), "f", "n", "happy")[0]["user"]["recording"],
                "think": {"median_ms": 2000, "p95_ms": 9000},
            },
            "load": {
                "sessions": 90,
                "arrival": {"per_s": 5, "burst": 3, "steps": [{"per_s": 1, "for_s": 60}]},
                "objectives": {"turn_p95_ms": 900, "sessions_per_s": 2},
            },
        })
    )  # fmt: skip
    for told in (
        "agent: What is your order number?", "user: great, bye (goal_met)",
        "drawn with median_ms 2000, p95_ms 9000",
        "90 sessions, 5 a second (poisson), 3 together, after 60 s of 1 a second; 10 at once",
        "objective: turn_p95_ms at most 900", "objective: sessions_per_s at least 2",
    ):  # fmt: skip
        assert told in text


@pytest.mark.parametrize("field", [{"arrival": {"per_s": 1}}, {"objectives": {"error_rate": 0}}])
@pytest.mark.parametrize("category", [c for c in Category if c is not Category.LOAD])
def test_only_load_scenarios_have_arrivals_and_objectives(
    field: dict[str, Any], category: Category
) -> None:
    document = {"id": "s", "name": "s", "category": category, "load": field}
    with pytest.raises(ValueError, match="only scenarios of category load"):
        Scenario.model_validate(document)


RECORDED = UserBrief(
    persona=Persona(name="plain"),
    seed=3,
    recording=tuple(RecordedLine.model_validate({"who": w, "text": t}) for w, t in SPOKEN),
    think=Latency(median_ms=2000, p95_ms=9000),
)


def turn(*entries: UserSaid | AgentSaid, brief: UserBrief = RECORDED) -> TrajectoryEvent:
    """The user turn that follows these, as it is recorded."""
    side = UserSide("s", "r", brief, entries=list(entries))
    number = 1 + sum(isinstance(entry, UserSaid) for entry in entries)
    simulator = ReplaySimulator(AgendaSimulator())
    (event,) = asyncio.run(perform(side, (USER, number), simulator, FixedClock(0)))
    return event


OPENING = UserSaid(1, "my kettle leaks")


def test_a_turn_tells_whether_it_was_recorded_and_how_long_the_user_thought() -> None:
    again = turn(OPENING, AgentSaid(1, "What's the order number?")).user_turn
    led_away = turn(OPENING, AgentSaid(1, "What is your date of birth?")).user_turn
    assert again is not None
    assert led_away is not None
    assert (again.text, again.replayed) == ("its ORD-4711", True)
    assert led_away.replayed is False
    assert again.think_ms == pause_ms(RECORDED, 2) > 0
    plain = turn(brief=RECORDED.model_copy(update={"recording": (), "think": None})).user_turn
    assert plain is not None
    assert (plain.replayed, plain.think_ms) == (None, 0)


def test_the_share_of_what_was_said_again_is_a_measure_that_names_where_it_was_left() -> None:
    session = Session()
    session.user("my kettle leaks", replayed=True).agent("What is your date of birth?")
    session.user("I do not know that.", replayed=False).agent("Fine.")
    session.user("its ORD-4711", replayed=False).agent("A refund has been issued.")
    session.user("thanks", ending="goal_met", replayed=True)
    measures = {m.dimension: m for m in evaluate_all(read(session.end()), JUDGE)}
    found = measures[Dimension.REPLAYED]
    assert (found.kind, found.value) == ("measure", 0.5)
    assert found.reason.startswith("2 of 4 user turns")
    assert found.reason.endswith("before u2")
    others = evaluate_all(read(Session().user().agent().end()), JUDGE)
    assert Dimension.REPLAYED not in {measure.dimension for measure in others}
