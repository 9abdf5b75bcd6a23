"""Policies against a reference that is as naive as their definitions: sets and quantifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.policies import FORMS, Policy
from schemas.trajectory import TrajectoryEvent
from services.judge.policies import rulings
from services.judge.trajectory import read
from tests.support.tool_proxy import make_brief
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V09")

TURN_TAKES, CALL_TAKES = 60, 7
VALUES = st.sampled_from([1, 2])
WORDS = ("red k1", "red k2", "blue")


@dataclass
class Item:
    """One thing in the log."""

    step: str
    turn: int
    calls: int
    kind: str
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    ok: bool = True

    @property
    def seconds(self) -> int:
        made = self.calls - 1 if self.kind == "call" else self.calls
        return max(0, self.turn - 1) * TURN_TAKES + made * CALL_TAKES


Happening = tuple[str, str, int, bool]
"""Kind, name, value, and whether it succeeded."""
called = st.tuples(st.just("call"), st.sampled_from(["a", "b"]), VALUES, st.booleans())
happening = st.one_of(
    called,
    called,
    called,
    st.tuples(st.just("says"), st.sampled_from(WORDS), st.just(0), st.just(True)),
    st.tuples(st.just("slot"), st.just("k"), VALUES, st.just(True)),
    st.tuples(st.just("flow"), st.sampled_from(["f", "g"]), st.just(0), st.just(True)),
    st.tuples(st.just("handoff"), st.sampled_from(["p", "q"]), VALUES, st.just(True)),
    st.tuples(st.just("custom"), st.just("c"), VALUES, st.just(True)),
)


def recorded(
    happened: Sequence[tuple[str, str, int, bool]],
) -> tuple[list[TrajectoryEvent], list[Item]]:
    """The events of a session, and the same as the reference reads it.

    It begins with one event of each family, of other names, so that nothing is unseen.
    """
    session, items, turn, calls, traces = Session(), [], 1, 0, 0
    session.user("hello")
    for kind, name, value, ok in [
        ("slot", "other", 1, True), ("flow", "other", 0, True), ("handoff", "other", 9, True),
        ("custom", "other", 1, True), *happened,
    ]:  # fmt: skip
        if kind == "call":
            calls += 1
            session.call(name, {"k": value}, {} if ok else {"error": "no"})
            items.append(Item(f"t{calls}", turn, calls, "call", name, {"k": value}, ok))
        elif kind == "says":
            session.agent(name)
            items.append(Item(f"a{turn}", turn, calls, "says", name))
            turn += 1
            session.user(name)
            items.append(Item(f"u{turn}", turn, calls, "user_says", name))
        else:
            traces += 1
            payload: dict[str, Any]
            if kind == "slot":
                payload = {"event": "slot_was_set", "name": name, "value": value}
                values, kind = {name: value}, "slot_was_set"
            elif kind == "flow":
                payload, values = {"event": "flow_started", "flow_id": name}, {}
                kind = "flow_started"
            elif kind == "handoff":
                payload = {"from": name, "to": f"r{value}"}
                values = {"by": name, "to": f"r{value}"}
            else:
                payload, values = {"name": name, "data": {"k": value}}, {"k": value}
            types = {"handoff": "handoff", "custom": "custom"}
            session.trace(types.get(kind, "state"), payload)
            items.append(Item(f"x{traces}", turn, calls, kind, name, values))
    events = session.agent("bye").end()
    items.append(Item(f"a{turn}", turn, calls, "says", "bye"))
    world = {"name": "desk", "turn_takes": f"{TURN_TAKES}s", "call_takes": f"{CALL_TAKES}s"}
    brief = make_brief().model_dump(mode="json")
    brief["world"] = world
    started = events[0].session_started
    assert started is not None
    body = replace(started, tool_brief=json.dumps(brief))
    return [replace(events[0], session_started=body), *events[1:]], items


calls = st.fixed_dictionaries(
    {"tool": st.sampled_from(["a", "b"])},
    optional={
        "arguments": st.fixed_dictionaries({"k": VALUES}),
        "ok": st.booleans(),
        "where": st.sampled_from(
            [{"/k": {"above": 1}}, {"/k": {"below": 2}}, {"/z": {"above": 0}}]
        ),
    },
)
spoken = st.sampled_from(["red", "blue", "k(?P<k>[12])", "bye"])
moments = st.one_of(
    st.fixed_dictionaries({"call": calls}),
    st.builds(lambda tool: {"call": {"tool": tool}}, st.sampled_from(["a", "b"])),
    st.builds(lambda tool: {"call": {"tool": tool}}, st.sampled_from(["a", "b"])),
    st.fixed_dictionaries({"says": spoken}),
    st.fixed_dictionaries({"user_says": spoken}),
    st.fixed_dictionaries({"slot_was_set": st.one_of(
        st.just("k"), st.fixed_dictionaries({"name": st.just("k"), "value": VALUES}))}),
    st.fixed_dictionaries({"flow_started": st.sampled_from(["f", "g"])}),
    st.fixed_dictionaries({"handoff": st.fixed_dictionaries(
        {}, optional={"by": st.sampled_from(["p", "q"]), "to": st.sampled_from(["r1", "r2"])})}),
    st.fixed_dictionaries({"custom": st.one_of(
        st.just("c"), st.fixed_dictionaries({"name": st.just("c"), "data": st.fixed_dictionaries(
            {"/k": VALUES})}))}),
)  # fmt: skip
withins = st.one_of(
    st.none(), st.integers(1, 3),
    st.fixed_dictionaries({"calls": st.integers(0, 3)}, optional={"turns": st.integers(0, 2)}),
    st.fixed_dictionaries({"turns": st.integers(0, 2)}),
    st.fixed_dictionaries({"seconds": st.integers(0, 150)}),
)  # fmt: skip
same = st.sampled_from([[], [], ["k"]])
kinds_of_all = st.one_of(
    st.builds(lambda call: {"call": {**call, "arguments": {"k": 1}}}, calls),
    st.fixed_dictionaries({"says": spoken}),
    st.just({"slot_was_set": {"name": "k", "value": 1}}),
    st.just({"handoff": {"by": "p", "to": "r1"}}),
    st.just({"custom": {"name": "c", "data": {"/k": 2}}}),
)


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """A rule whose parts are of a few patterns, so that they have to do with one another."""
    pool = st.sampled_from(draw(st.lists(moments, min_size=2, max_size=3)))
    one, form = draw(pool), draw(st.sampled_from(FORMS))
    other = draw(st.one_of(pool, calls))
    body: dict[str, Any]
    if form == "never":
        body = merged(one, draw(pool))
    elif form == "always":
        body = draw(kinds_of_all)
    elif form == "at_most":
        body = {**one, "times": draw(st.integers(0, 2)), "per": draw(same)}
    else:
        other_name = "first" if form == "requires" else "then"
        body = {**one, other_name: other, "same": draw(same), "within": draw(withins)}
    unless = draw(st.none() | st.none() | pool)
    return {
        "id": "p",
        form: body,
        "after": draw(st.none() | st.none() | pool),
        "until": draw(st.none() | st.none() | pool),
        "unless": unless and {**unless, "same": draw(same)},
    }


def values_if_fits(item: Item, pattern: Mapping[str, Any], ok: bool | None) -> Any:
    """The values of an item that fits a pattern, or None."""
    if "tool" in pattern:
        pattern = {"call": pattern}
    for kind, wanted in pattern.items():
        if kind != item.kind:
            continue
        if kind == "call":
            asked = wanted.get("ok", ok)
            if item.name != wanted["tool"] or (asked is not None and item.ok is not asked):
                continue
            if any(item.values.get(k) != v for k, v in wanted.get("arguments", {}).items()):
                continue
            like = wanted.get("where", {})
            number = item.values["k"]
            if "/z" in like:
                continue
            if not number > like.get("/k", {}).get("above", -1):
                continue
            if not number < like.get("/k", {}).get("below", 99):
                continue
            return item.values
        if kind in ("says", "user_says"):
            found = re.search(wanted, item.name)
            if found:
                return found.groupdict()
            continue
        if kind == "handoff":
            if all(item.values[who] == name for who, name in wanted.items()):
                return item.values
            continue
        name = wanted if isinstance(wanted, str) else wanted["name"]
        if item.name != name:
            continue
        if isinstance(wanted, Mapping):
            value = wanted.get("value", wanted.get("data", {}).get("/k"))
            if value is not None and item.values["k"] != value:
                continue
        return item.values
    return None


def agree(one: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(n in one and n in other and one[n] == other[n] for n in names)


def near(one: Item, other: Item, within: Any) -> bool:
    bound = {"calls": within} if isinstance(within, int) else within or {}
    return (
        other.calls - one.calls <= bound.get("calls", 99)
        and other.turn - one.turn <= bound.get("turns", 99)
        and other.seconds - one.seconds <= bound.get("seconds", 9999)
    )


def holds_at(items: Sequence[Item], at: int, rule: Mapping[str, Any]) -> bool:
    """Whether the rule's scope is open at an item, by the history before it."""
    is_open = rule["after"] is None
    for item in items[:at]:
        # An item that both closes and opens has closed it; nothing is told of the same item.
        if rule["after"] and values_if_fits(item, rule["after"], True) is not None:
            is_open = True
        if rule["until"] and values_if_fits(item, rule["until"], True) is not None:
            is_open = False
    return is_open


def excused(items: Sequence[Item], at: int, values: Any, rule: Mapping[str, Any]) -> bool:
    if rule["unless"] is None:
        return False
    unless = {k: v for k, v in rule["unless"].items() if k != "same"}
    for index, item in enumerate(items):
        due = (
            rule.get("follows") and index > at and near(items[at], item, rule["follows"]["within"])
        )
        if index < at or due:
            found = values_if_fits(item, unless, True)
            if found is not None and agree(values, found, rule["unless"]["same"]):
                return True
    return False


def breaches(items: Sequence[Item], rule: Mapping[str, Any]) -> list[str]:
    """The steps that break the rule, by its definition."""
    form = next(form for form in FORMS if form in rule)
    body = {k: v for k, v in rule[form].items()
            if k not in ("first", "then", "same", "within", "per", "times")}  # fmt: skip
    broken = []
    for at, item in enumerate(items):
        wants_done = True if form in ("at_most", "follows") else None
        if form == "always":
            ((kind, wanted),) = body.items()
            loose = {
                "call": lambda w: {"tool": w["tool"]},
                "says": lambda w: "",
                "handoff": lambda w: {"by": w["by"]},
            }.get(kind, lambda w: w["name"])
            values = values_if_fits(item, {kind: loose(wanted)}, None)
            if values is None or values_if_fits(item, body, None) is not None:
                continue
            hits = [values]
        else:
            # Of `never`, each field is a thing of its own; all others have one.
            hits = [
                v
                for key in body
                if (v := values_if_fits(item, {key: body[key]}, wants_done)) is not None
            ]
        for values in hits:
            if form == "requires" and any(
                (v := values_if_fits(other, rule[form]["first"], True)) is not None
                and agree(values, v, rule[form]["same"])
                and near(other, item, rule[form]["within"])
                for other in items[:at]
            ):
                continue
            if form == "follows" and any(
                (v := values_if_fits(other, rule[form]["then"], None)) is not None
                and agree(values, v, rule[form]["same"])
                and near(item, other, rule[form]["within"])
                for other in items[at + 1 :]
            ):
                continue
            if form == "at_most":
                group = [values.get(name) for name in rule[form]["per"]]
                before = sum(
                    1 for other in items[:at]
                    if (v := values_if_fits(other, body, True)) is not None
                    and [v.get(name) for name in rule[form]["per"]] == group
                )  # fmt: skip
                if before < rule[form]["times"]:
                    continue
            if holds_at(items, at, rule) and not excused(items, at, values, rule):
                broken.append(item.step)
    return sorted(broken)


@settings(max_examples=250, deadline=None)
@given(happened=st.lists(happening, min_size=4, max_size=12), rule=rules())
def test_the_breaches_are_those_of_the_definition(
    happened: list[Happening], rule: dict[str, Any]
) -> None:
    events, items = recorded(happened)
    ruled = rulings(read(events), [Policy.model_validate(rule)])
    assert ruled.unseen == ()
    assert sorted(one.step for one in ruled.violations) == breaches(items, rule)
    order = [item.step for item in items]
    places = [order.index(one.step) for one in ruled.violations]
    assert places == sorted(places)


@settings(max_examples=50, deadline=None)
@given(happened=st.lists(happening, max_size=8), rule=rules())
def test_a_rule_with_defaults_left_out_when_published_is_the_same_rule(
    happened: list[Happening], rule: dict[str, Any]
) -> None:
    written = Policy.model_validate(rule)
    published = Policy.model_validate(written.model_dump(mode="json", exclude_defaults=True))
    trajectory = read(recorded(happened)[0])
    assert rulings(trajectory, [published]) == rulings(trajectory, [written])


BOUNDS = [1, 2, 3, *({unit: n} for unit in ("calls", "turns") for n in range(3)),
          *({"seconds": n} for n in (0, 6, 7, 59, 60, 67, 74))]  # fmt: skip


@pytest.mark.parametrize("within", BOUNDS, ids=str)
@pytest.mark.parametrize("form", ["requires", "follows"])
def test_bounds_count_to_the_last_one(form: str, within: Any) -> None:
    """Every distance in calls and turns, below, at and above each bound."""
    first, last = ("b", "a") if form == "requires" else ("a", "b")
    other = "first" if form == "requires" else "then"
    rule = {
        "id": "p",
        form: {"call": {"tool": "a"}, other: {"tool": "b"}, "same": [], "within": within},
        "after": None, "until": None, "unless": None,
    }  # fmt: skip
    outcomes = set()
    for calls_between in range(4):
        for turns_between in range(4):
            between = [("call", "c", 1, True)] * calls_between
            happened = [("call", first, 1, True), *between,
                        *[("says", "blue", 0, True)] * turns_between,
                        ("call", last, 1, True)]  # fmt: skip
            events, items = recorded(happened)
            ruled = rulings(read(events), [Policy.model_validate(rule)])
            assert [one.step for one in ruled.violations] == breaches(items, rule)
            outcomes.add(bool(ruled.violations))
    assert True in outcomes
