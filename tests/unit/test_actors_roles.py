"""Multi-agent systems: roles, hand-offs in order, and what each sub-agent did."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from schemas.briefs import ToolBrief, UserBrief, judge_brief
from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.scores import DimensionScore
from services.cli.lint.showing import shown
from services.gate.policy import DEFAULT
from services.judge.core import passed, score
from services.judge.trajectory import read
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("V19")

ACTORS: dict[str, Any] = {
    "roles": {
        "planner": {"tools": ["get_order"], "hands_to": ["clerk"]},
        "clerk": {"tools": ["get_order", "refund"], "hands_to": []},
    },
    "handoffs": [{"by": "planner", "to": "clerk"}],
}


def handed(session: Session, by: str, to: str) -> Session:
    return session.trace("handoff", {"from": by, "to": to})


def sound() -> Session:
    session = Session().user("Refund order 1.").call("get_order", {"id": 1}, actor="planner")
    handed(session, "planner", "planner/clerk")
    return session.call("refund", {"id": 1}, actor="planner/clerk")


def scores(session: Session, **actors: Any) -> dict[str, DimensionScore]:
    given = actors or ACTORS
    return {one.dimension: one
            for one in score(read(session.agent("Done.").end()), brief(actors=given))}  # fmt: skip


def test_sub_agents_that_keep_to_their_roles_pass() -> None:
    gate = scores(sound())["actors"]
    assert (gate.kind, gate.passed, gate.value) == ("gate", True, 1.0)
    assert gate.reason == "2 sub-agents kept to their roles"
    assert gate.evaluator == "actors/1"
    told = scores(sound().call("get_order"))["actors"].reason
    assert told.endswith(", and 1 call attributed to none")


WRONG: list[tuple[str, Session, dict[str, Any], str, tuple[str, ...]]] = [
    ("a tool of another", handed(
        Session().user().call("refund", actor="planner"), "planner", "clerk"), {},
     "planner called refund (t1), which is not for planner", ("t1",)),
    ("a tool of another, refused", handed(
        Session().user().call("refund", actor="planner", error="tool_unknown", status=404),
        "planner", "clerk"), {},
     "planner called refund (t1)", ("t1",)),
    ("a hand-off that is not allowed", handed(handed(
        Session().user(), "planner", "clerk"), "clerk", "planner"), {},
     "clerk handed over to planner (x2), and may only to nobody", ("x2",)),
    ("the hand-off never occurs", Session().user().call("get_order", actor="planner"), {},
     "a hand-off by planner to clerk does not occur: 0 of 1", ()),
    ("the order is wrong", handed(handed(Session().user(), "b", "c"), "a", "b"),
     {"handoffs": [{"by": "a", "to": "b"}, {"by": "b", "to": "c"}]},
     "a hand-off by b to c does not occur after x2 (only at x1): 1 of 2", ("x2",)),
    ("somebody else acts", handed(sound(), "clerk", "stranger").call("get", actor="stranger"),
     {"roles": {"planner": {}, "clerk": {}}, "others": False},
     "stranger acted (t3), and has no role", ("t3",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("session", "actors", "words", "citations"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_each_wrong_step_fails_and_is_cited(
    session: Session, actors: dict[str, Any], words: str, citations: tuple[str, ...]
) -> None:
    by_name = scores(session, **actors)
    gate = by_name["actors"]
    assert gate.passed is False
    assert words in gate.reason
    assert gate.citations == citations
    assert passed(list(by_name.values())) is False


def test_an_agent_that_reports_nothing_of_sub_agents_is_not_passed_by_it() -> None:
    single = lambda: Session().user().call("refund")  # noqa: E731
    roles = scores(single(), roles=ACTORS["roles"])["actors"]
    assert (roles.status, roles.passed) == ("not_applicable", None)
    assert "reports nothing of sub-agents" in roles.reason
    expected = scores(single())
    assert (expected["actors"].status, expected["actors"].passed) == ("unscored", None)
    assert passed(list(expected.values())) is None


def test_hand_offs_that_were_not_reported_though_they_must_have_been_are_open() -> None:
    session = Session().user().call("get_order", actor="planner").call("refund", actor="clerk")
    gate = scores(session)["actors"]
    assert (gate.status, gate.passed) == ("unscored", None)
    assert gate.reason == "the agent reported no hand-offs, though clerk acted"
    wrong = Session().user().call("refund", actor="planner").call("refund", actor="clerk")
    assert scores(wrong)["actors"].passed is False  # what was seen counts


def test_the_longest_name_of_a_path_is_its_role_and_the_actor_header_says_who_hands_over() -> None:
    roles = {"clerk": {"tools": []}, "desk/clerk": {"tools": ["refund"]}}
    session = Session().user().call("refund", actor="bot/desk/clerk")
    assert scores(session, roles=roles)["actors"].passed is True
    session = Session().user().call("refund", actor="bot/clerk")
    assert scores(session, roles=roles)["actors"].passed is False
    handing = Session().user().trace("handoff", {"to": "clerk"}, actor="planner")
    assert scores(handing)["actors"].passed is True


def test_without_a_word_about_actors_there_is_no_gate_and_single_agents_have_no_figures() -> None:
    by_name = {one.dimension for one in score(read(sound().agent().end()), brief())}
    assert "actors" not in by_name
    assert {name for name in by_name if "." in name} == {"tool_calls.others", "tool_use.others"}
    alone = score(read(Session().user().call("refund").agent().end()), brief())
    assert not [one.dimension for one in alone if "." in one.dimension]


def test_each_sub_agent_has_its_own_results() -> None:
    session = sound().call("refund", error="arguments_invalid", status=422, actor="clerk")
    by_name = scores(session.call("get_order", actor="stranger").call("get_order"))
    figures = {name: (one.kind, one.value, one.citations)
               for name, one in by_name.items() if "." in name}  # fmt: skip
    assert figures == {
        "tool_calls.planner": ("measure", 1.0, ("t1",)),
        "tool_use.planner": ("quality", 1.0, ("t1",)),
        "tool_calls.clerk": ("measure", 2.0, ("t2", "t3")),
        "tool_use.clerk": ("quality", 0.5, ("t3",)),
        "tool_calls.others": ("measure", 1.0, ("t4",)),
        "tool_use.others": ("quality", 1.0, ("t4",)),
    }
    assert by_name["tool_use.clerk"].reason == "refund (t3) was refused: arguments_invalid"
    assert by_name["tool_calls"].value == 5.0  # of the whole agent, as ever


def test_a_repeated_write_of_two_sub_agents_is_the_second_ones_mistake() -> None:
    change = [{"op": "replace", "path": "/refunds", "value": 1}]
    session = Session({"refunds": 0}).user()
    session.call("refund", {"id": 1}, changes=change, actor="planner")
    session.call("refund", {"id": 1}, changes=change, actor="clerk")
    by_name = scores(handed(session, "planner", "clerk"))
    assert by_name["tool_use.planner"].value == 1.0
    assert by_name["tool_use.clerk"].value == 0.0
    assert by_name["tool_use.clerk"].citations == ("t1", "t2")


def test_the_registered_catalogue_has_results_too_and_who_did_nothing_says_so() -> None:
    events = sound().agent("Done.").end()
    started = events[0].session_started
    assert started is not None
    catalogue = json.dumps({"actors": ["clerk", *(f"n{n}" for n in range(40))]})
    body = replace(started, tool_brief=catalogue)
    found = {one.dimension: one for one in score(
        read([replace(events[0], session_started=body), *events[1:]]), brief())}  # fmt: skip
    assert found["tool_calls.clerk"].value == 1.0
    assert found["tool_calls.n0"].value == 0.0
    assert found["tool_use.n0"].status == "not_applicable"
    assert found["tool_calls.others"].value == 1.0
    assert len([name for name in found if name.startswith("tool_calls.")]) == 21


def test_one_call_more_of_a_sub_agent_is_tolerated_as_one_more_of_the_agent_is() -> None:
    assert DEFAULT.measure("tool_calls.clerk", 1.0) == DEFAULT.measure("tool_calls", 1.0) == 1.0


@pytest.mark.req("V02")
def test_only_the_judge_knows_how_sub_agents_should_work_together() -> None:
    assert judge_brief(parse_scenario(text(), "a.yaml")).actors.handoffs
    assert "actors" not in UserBrief.model_fields
    assert ToolBrief.model_fields["actors"].annotation == tuple[str, ...]  # the catalogue alone


def text(**actors: Any) -> str:
    return yaml.safe_dump({"scenario": {"name": "x", "actors": actors or ACTORS}})


def test_scenarios_show_tells_the_roles_and_the_hand_offs() -> None:
    told = shown(parse_scenario(text(**ACTORS, others=False), "a.yaml"))
    for line in (
        "sub-agent planner may call get_order and may hand over to clerk",
        "sub-agent clerk may call get_order, refund and may hand over to nobody",
        "no other sub-agent acts",
        "hand-off by planner to clerk",
    ):
        assert f"  {line}\n" in told


@pytest.mark.req("S06")
@pytest.mark.parametrize(
    ("actors", "where", "words"),
    [
        ({"roles": {"a": {"hands_to": ["b"]}}, "handoffs": [{"by": "a", "to": "c"}]},
         "scenario.actors.handoffs[0].to", "a may not hand over to c"),
        ({"roles": {"a": {}}, "others": False, "handoffs": [{"by": "a", "to": "c"}]},
         "scenario.actors.handoffs[0].to", "c has no role"),
        ({"roles": {"not a path": {}}}, "scenario.actors.roles", "expected text like"),
        ({"roles": {"a": {"tolls": []}}}, "scenario.actors.roles.a.tolls", "'tools'"),
    ],
)  # fmt: skip
def test_roles_that_contradict_themselves_are_refused(
    actors: dict[str, Any], where: str, words: str
) -> None:
    with pytest.raises(InvalidDocument) as raised:
        parse_scenario(text(**actors), "a.yaml")
    assert where in str(raised.value)
    assert words in str(raised.value)
