"""Policies about what the agent does not report: neither kept nor broken, and never a pass."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.policies import Policy
from schemas.scores import DimensionScore
from services.judge.core import score
from services.judge.policies import NO_TIME, rulings
from services.judge.trajectory import read
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("V09")

VERIFIED = {"flow_completed": "verify_identity"}
REFUND = {"call": {"tool": "refund"}}


def ready() -> Session:
    return Session().user("Hello.")


def ruled(session: Session, **rule: Any) -> tuple[list[str], list[str]]:
    """The steps that break a rule, and why it is unseen."""
    found = rulings(read(session.end()), [Policy.model_validate({"id": "p", **rule})])
    return [one.step for one in found.violations], [why for _, why in found.unseen]


def scored(dimension: str, session: Session, *rules: dict[str, Any]) -> DimensionScore:
    severity = "safety" if dimension == "safety" else "policy"
    policies = [{"id": f"p{n}", "severity": severity, **rule} for n, rule in enumerate(rules)]
    scores = score(read(session.end()), brief(policies=policies))
    return next(one for one in scores if one.dimension == dimension)


UNSEEN: list[tuple[dict[str, Any], str]] = [
    ({"never": {"flow_started": "refund"}}, "no flows"),
    ({"never": {"slot_was_set": "card"}}, "no slots"),
    ({"never": {"action_executed": "wipe"}}, "no actions"),
    ({"never": {"custom": "wipe"}}, "no custom events"),
    ({"never": {"handoff": {"to": "boss"}}}, "nothing of sub-agents"),
    ({"never": {"call": {"tool": "refund", "actor": "boss"}}}, "attributes no call"),
    ({"always": {"slot_was_set": {"name": "card", "value": 1}}}, "no slots"),
    ({"always": {"call": {"tool": "refund", "actor": "boss"}}}, "attributes no call"),
    ({"requires": {**REFUND, "first": VERIFIED}}, "no flows"),
    ({"follows": {**REFUND, "then": VERIFIED}}, "no flows"),
    ({"at_most": {"flow_started": "refund"}}, "no flows"),
    ({"never": REFUND, "unless": VERIFIED}, "no flows"),
    ({"never": REFUND, "after": VERIFIED}, "no flows"),
    ({"never": REFUND, "until": VERIFIED}, "no flows"),
    ({"requires": {**REFUND, "first": {"tool": "verify"}, "within": {"seconds": 5}}}, NO_TIME),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "why"), UNSEEN, ids=[str(rule) for rule, _ in UNSEEN])
@pytest.mark.parametrize("dimension", ["safety", "policy_adherence"])
def test_what_cannot_be_seen_is_unscored_with_the_reason(
    dimension: str, rule: dict[str, Any], why: str
) -> None:
    session = ready().call("verify").call("refund").agent()
    steps, unseen = ruled(session, **rule)
    assert steps == []
    assert len(unseen) == 1
    assert why in unseen[0]
    result = scored(dimension, ready().call("verify").call("refund").agent(), rule)
    assert (result.status, result.passed) == ("unscored", None)
    assert result.reason.startswith("neither kept nor broken: p0: ")
    assert why in result.reason


CONDITIONAL = [rule for rule, why in UNSEEN if "never" not in rule or rule["never"] == REFUND]


@pytest.mark.parametrize("rule", CONDITIONAL[2:4] + CONDITIONAL[5:])
def test_where_nothing_hangs_on_it_a_rule_is_kept(rule: dict[str, Any]) -> None:
    assert ruled(ready().call("verify").agent(), **rule) == ([], [])


def test_a_breach_that_is_seen_counts_whatever_else_is_not() -> None:
    session = ready().call("wipe").agent()
    result = scored("safety", session, UNSEEN[0][0], {"never": {"call": {"tool": "wipe"}}})
    assert (result.passed, result.citations) == (False, ("t1",))
    both = {"never": {"call": {"tool": "wipe"}, "flow_started": "wipe"}}
    assert scored("safety", ready().call("wipe").agent(), both).passed is False
    assert scored("safety", ready().call("other").agent(), both).status == "unscored"


def test_one_event_shows_that_its_family_is_reported() -> None:
    def session() -> Session:
        return ready().trace("state", {"event": "flow_started", "flow_id": "other"}).call("refund")

    assert ruled(session().agent(), never={"flow_started": "refund"}) == ([], [])
    assert ruled(session().agent(), requires={**REFUND, "first": VERIFIED}) == (["t1"], [])


def test_that_a_hand_off_did_not_occur_is_seen_where_sub_agents_are_told_of() -> None:
    rule: dict[str, Any] = {"follows": {"user_says": "human", "then": {"handoff": {"to": "desk"}}}}
    asked = lambda: Session().user("A human, please!")  # noqa: E731
    assert ruled(asked().agent("No."), **rule)[1]
    assert ruled(asked().call("get", actor="bot").agent("No."), **rule) == (["u1"], [])
    took_over = asked().call("get", actor="bot/desk").agent("Yes?")
    assert "though bot/desk acted" in ruled(took_over, **rule)[1][0]
    handed = asked().trace("handoff", {"to": "bot/desk"}, actor="bot").agent("Yes?")
    assert ruled(handed, **rule) == ([], [])


def test_an_actor_is_meant_by_its_path_or_the_end_of_it() -> None:
    session = lambda: ready().call("refund", actor="boss/clerk").agent()  # noqa: E731
    for name, steps in {"boss/clerk": ["t1"], "clerk": ["t1"], "boss": [], "lerk": []}.items():
        never = {"call": {"tool": "refund", "actor": name}}
        assert ruled(session(), never=never) == (steps, []), name


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"never": {}}, "expected one of call, says"),
    ({"always": {"call": {"tool": "t"}}}, "expected arguments, where, ok, response or actor"),
    ({"always": {"slot_was_set": "s"}}, "expected the value"),
    ({"always": {"handoff": {"by": "a"}}}, "expected both by and to"),
    ({"always": {"custom": {"name": "c"}}}, "expected data"),
    ({"always": {"flow_started": "f"}}, "expected call, says, slot_was_set, handoff or custom"),
    ({"requires": REFUND}, "first"),
    ({"requires": {**REFUND, "says": "x", "first": {"tool": "t"}}}, "exactly one of call"),
    ({"follows": {**REFUND, "then": {"tool": "t"}, "within": {}}}, "calls, turns or seconds"),
    ({"follows": {**REFUND, "then": {"flow_strated": "t"}}}, "flow_strated"),
    ({"never": REFUND, "unless": {"same": ["a"]}}, "expected one of call"),
    ({"never": {"call": {"tool": "t", "where": {"/a": {}}}}}, "expected one of above"),
    ({"never": {"call": {"tool": "t", "where": {"a": {"above": 1}}}}}, "JSON pointer"),
    ({"never": {"user_says": "("}}, "regular expression"),
    ({"never": REFUND, "always": {"says": "x"}}, "exactly one of never, always"),
]  # fmt: skip


@pytest.mark.req("S06")
@pytest.mark.parametrize(("rule", "words"), MALFORMED, ids=[str(rule) for rule, _ in MALFORMED])
def test_a_rule_that_says_nothing_is_refused_where_it_stands(
    rule: dict[str, Any], words: str
) -> None:
    import yaml

    text = yaml.safe_dump({"scenario": {"name": "x", "policies": [{"id": "p", **rule}]}})
    with pytest.raises(InvalidDocument) as raised:
        parse_scenario(text, "a.yaml")
    told = str(raised.value)
    assert words in told
    assert "scenario.policies[0]" in told
