"""The demo's world and registration."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deploy.demo.register import agent_registration, demo_tools
from deploy.demo.tools import REQUIRED_FIELDS
from deploy.demo.world import world
from services.tool_proxy.world import Context, ToolError

START = datetime(2026, 1, 15, 9, tzinfo=UTC)


class Shop:
    """The world with its clock in the test's hand."""

    def __init__(self) -> None:
        self.state = world.initial_state
        self.now = START

    def __call__(self, name: str, **arguments: Any) -> Any:
        tool = world.find(name)
        assert tool is not None
        context = Context(self.state, self.now, random.Random(0), 1)
        return tool(context, json.dumps(arguments).encode())


def test_delivery_follows_the_clock() -> None:
    shop = Shop()
    seen = []
    for days in (0, 4, 7):
        shop.now = START + timedelta(days=days)
        seen.append(shop("get_order", order_id="ORD-1003")["status"])
    assert seen == ["processing", "in_transit", "delivered"]


def test_a_refund_settles_after_five_days_and_can_be_paid_twice() -> None:
    shop = Shop()
    for _ in range(2):
        shop("issue_refund", order_id="ORD-1001", customer_id="cus_1001", amount=49.9)
    assert shop.state["orders"]["ORD-1001"]["refunded"] == 99.8
    assert [refund["refund_id"] for refund in shop.state["refunds"]] == ["RF-0001", "RF-0002"]
    assert shop("get_order", order_id="ORD-1001")["refund"]["status"] == "pending"
    shop.now = START + timedelta(days=5)
    assert shop("get_order", order_id="ORD-1001")["refund"]["status"] == "paid"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("get_order", {"order_id": "ORD-1"}, "not_found"),
        ("find_customer", {"email": "x@example.com"}, "not_found"),
        ("list_orders", {"customer_id": "cus_1"}, "not_found"),
        ("cancel_order", {"order_id": "ORD-1001", "customer_id": "cus_1001"}, "conflict"),
        ("cancel_order", {"order_id": "ORD-1001", "customer_id": "cus_1002"}, "not_found"),
        (
            "change_address",
            {"order_id": "ORD-1002", "customer_id": "cus_1001", "address": "x"},
            "conflict",
        ),
        (
            "issue_refund",
            {"order_id": "ORD-1001", "customer_id": "cus_1001", "amount": 50},
            "invalid_amount",
        ),
    ],
)
def test_tools_say_no(tool: str, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(ToolError) as refused:
        Shop()(tool, **arguments)
    assert refused.value.code == code


def test_identity_is_postcode_or_code_and_never_nothing() -> None:
    shop = Shop()
    for given, verified in (
        ({"postcode": "nw16xe"}, True),
        ({"code": "482913"}, True),
        ({"postcode": "LS1 4AP", "code": "482913"}, True),
        ({"postcode": "LS1 4AP"}, False),
        ({"code": "730145"}, False),
        ({}, False),
    ):
        assert shop("verify_identity", customer_id="cus_1001", **given)["verified"] is verified


def test_notes_are_the_memory_between_conversations() -> None:
    shop = Shop()
    assert shop("list_case_notes", customer_id="cus_1001") == {"notes": []}
    shop("add_case_note", customer_id="cus_1001", text="Refund issued.", order_id="ORD-1001")
    assert shop("list_case_notes", customer_id="cus_1001")["notes"] == [
        {"written_on": "2026-01-15", "order_id": "ORD-1001", "text": "Refund issued."}
    ]


def test_customers_see_their_own_orders() -> None:
    shop = Shop()
    listed = shop("list_orders", customer_id="cus_1002")["orders"]
    assert [order["order_id"] for order in listed] == ["ORD-1003", "ORD-1004"]
    shop("cancel_order", order_id="ORD-1003", customer_id="cus_1002")
    assert shop("list_orders", customer_id="cus_1002")["orders"][0]["status"] == "cancelled"


def test_the_agent_knows_every_tool_it_is_registered_with() -> None:
    names = [tool.name for tool in demo_tools()]
    assert names == [tool.name for tool in world.tools]
    assert set(names) == set(REQUIRED_FIELDS)
    assert all(tool.description for tool in demo_tools())


@pytest.mark.req("R01", "V08")
def test_both_builds_are_registered_under_one_name_and_differ_in_build_only() -> None:
    made = {
        build: agent_registration("a", "order-support", "http://127.0.0.1:1/dispatch", build)
        for build in ("good", "regressed")
    }
    assert {agent.name for agent in made.values()} == {"order-support"}
    assert made["good"].tools == made["regressed"].tools
    assert [agent.build["build"] for agent in made.values()] == ["good", "regressed"]
    assert (made["good"].auth_header, made["good"].auth_value_ref) == (
        "Authorization",
        "env:DEMO_AGENT_AUTH",
    )
    schema = json.loads(made["good"].tools[0].input_schema)
    assert schema["required"] == ["email"]
    with pytest.raises(KeyError):
        agent_registration("a", "n", "http://127.0.0.1:1", "unknown")
