"""docs/policies.md: each of its examples, kept and broken."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from schemas.loader import parse_scenario
from schemas.policies import FORMS, Policy
from services.cli.lint.showing import shown
from services.judge.policies import rulings
from services.judge.trajectory import read
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V09")

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
EXAMPLES = {
    document["id"]: document for document in map(yaml.safe_load, re.findall(
        r"```yaml\n(.*?)```", PAGE, re.DOTALL))
}  # fmt: skip


def ready() -> Session:
    return Session().user("Hello.")


def asked() -> Session:
    """The user asks for a person, in a session whose agent reports its hand-offs."""
    first = ready().trace("handoff", {"from": "desk", "to": "orders"}).agent("Yes?")
    return first.user("Let me speak to a person!")


def flow(session: Session, event: str) -> Session:
    return session.trace("state", {"event": f"flow_{event}", "flow_id": "verify_identity"})


def handed(to: str) -> Callable[[Session], Session]:
    return lambda s: s.trace("handoff", {"from": "desk", "to": to})


KEPT_AND_BROKEN: dict[str, tuple[Session, Session, str, str]] = {
    "no-codes": (
        ready().agent("Your code was sent."),
        ready().agent("Your code is 123456."),
        "a1", r"the agent says '\\b\\d{6}\\b'",
    ),
    "euros-only": (
        ready().call("refund", {"currency": "EUR"}).call("charge", {"currency": "USD"}),
        ready().call("refund", {"currency": "EUR"}).call("refund", {"currency": "USD"}),
        "t2", 'refund was called, which is not refund(/currency {"one_of": ["EUR"]})',
    ),
    "verified-first": (
        ready().call("verify", {"customer": 1}).call("refund", {"customer": 1}),
        ready().call("verify", {"customer": 2}).call("refund", {"customer": 1}),
        "t2", "refund was called without verify before it for the same customer; t1 was for",
    ),
    "a-person-when-asked-for": (
        handed("human_desk")(asked()).agent("Just a moment."),
        handed("human_desk")(asked().agent("No.").user("Please.")).agent("Fine."),
        "u2", "was not followed by a hand-off by anybody to human_desk within 0 turns; the next",
    ),
    "refund-once": (
        ready().call("refund", {"order": 1}).call("refund", {"order": 2}),
        ready().call("refund", {"order": 1}).call("refund", {"order": 1}),
        "t2", "refund was called, the 2nd time for order 1, and once is the most",
    ),
    "verified-lately": (
        ready().call("verify").agent().user().agent().user().call("refund"),
        ready().call("verify").agent().user().agent().user().agent().user().call("refund"),
        "t2", "refund was called without verify before it within 2 turns; the last was t1",
    ),
    "small-refunds-only": (
        ready().call("refund", {"order": 1, "amount": 20}).call("approve", {"order": 2})
        .call("refund", {"order": 2, "amount": 200}),
        ready().call("approve", {"order": 2}).call("refund", {"order": 1, "amount": 200}),
        "t2", "refund was called",
    ),
    "silence-while-verifying": (
        flow(flow(ready().agent("your order is late").user(), "started"), "completed")
        .agent("your order is late"),
        flow(ready(), "started").agent("your order is late"),
        "a1", "the agent says",
    ),
}  # fmt: skip


def test_every_form_and_condition_has_an_example_and_every_example_two_sessions() -> None:
    assert set(EXAMPLES) == set(KEPT_AND_BROKEN)
    used = {key for document in EXAMPLES.values() for key in document}
    assert used >= {*FORMS, "after", "until", "unless"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_kept_and_broken_as_the_page_says(name: str) -> None:
    policy = Policy.model_validate(EXAMPLES[name])
    kept, broken, step, words = KEPT_AND_BROKEN[name]
    held = rulings(read(kept.end()), [policy])
    assert (held.violations, held.unseen) == ((), ())
    ruled = rulings(read(broken.end()), [policy])
    (breach,) = ruled.violations
    assert breach.step == step
    assert breach.words.startswith(f"{name}: ")
    assert words in breach.words
    assert breach.words.endswith(f"({step})")
    assert ruled.unseen == ()


def test_scenarios_show_tells_each_rule_in_a_line() -> None:
    text = yaml.safe_dump({"scenario": {"name": "x", "policies": list(EXAMPLES.values())}})
    told = shown(parse_scenario(text, "a.yaml"))
    for line in (
        "policy rule no-codes: never says /\\b\\d{6}\\b/",
        'policy rule euros-only: always refund(/currency {"one_of":["EUR"]})',
        "policy rule verified-first: refund() only after verify(), same customer",
        "policy rule a-person-when-asked-for: the user saying /speak to a (human|person)/ is "
        "followed by hand-off by anybody to human_desk within 0 turns",
        "policy rule refund-once: refund() at most once for each order",
        "policy rule verified-lately: refund() only after verify() within 2 turns",
        'policy rule small-refunds-only: no refund(/amount {"above":100.0}), unless approve(), '
        "same order",
        "policy rule silence-while-verifying: never says /your (address|order) is/, once "
        "flow_started verify_identity, until flow_completed verify_identity",
    ):
        assert f"  {line}\n" in told, told
