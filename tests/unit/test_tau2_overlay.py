"""A database as its differences: what comes back is what was there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from schemas.merge_patch import patched
from services.runtime.tau2.overlay import Base, dumped


class Part(BaseModel):
    name: str
    price: float


class Order(BaseModel):
    status: str
    note: str | None = None
    parts: list[Part] = []
    extra: dict[str, Part | None] = {}


class Device(BaseModel):
    on: bool = True
    sim: Part | None = None


class Shop(BaseModel):
    orders: dict[str, Order]
    device: Device
    lines: list[Part | None]


def shop() -> Shop:
    return Shop(
        orders={key: Order(status="open", note="n", parts=[Part(name="p", price=1)])
                for key in ("a", "b", "c")},
        device=Device(sim=Part(name="s", price=2)),
        lines=[Part(name="l", price=3)],
    )  # fmt: skip


BASE = Base(shop())
PARTS = st.builds(Part, name=st.text(max_size=3), price=st.floats(0, 9) | st.integers(0, 9))
ORDERS = st.builds(
    Order, status=st.sampled_from(["open", "gone", ""]), note=st.none() | st.text(max_size=2),
    parts=st.lists(PARTS, max_size=2),
    extra=st.dictionaries(st.sampled_from(["x", "y"]), st.none() | PARTS, max_size=2),
)  # fmt: skip
SHOPS = st.builds(
    Shop, orders=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), ORDERS),
    device=st.builds(Device, on=st.booleans(), sim=st.none() | PARTS),
    lines=st.lists(st.none() | PARTS, max_size=2),
)  # fmt: skip


def whole(database: Any) -> Any:
    """The database as JSON, tables looked through record by record."""
    orders = {key: dumped(database.orders[key]) for key in database.orders}
    return {"orders": orders, **dumped(database, exclude={"orders"})}


@pytest.mark.req("V07")
@given(SHOPS)
def test_changes_give_the_database_back(after: Shop) -> None:
    changes = BASE.changes(after)
    assert whole(BASE.with_changes(changes)) == whole(after)
    assert BASE.changes(BASE.with_changes(changes)) == changes


@pytest.mark.req("V07")
@given(SHOPS)
def test_changes_survive_being_merged_into_a_state_and_being_recorded(after: Shop) -> None:
    """They hold no null, which a merge patch takes for a removal."""
    changes = BASE.changes(after)
    merged = patched({"agent": {}}, {"agent": json.loads(json.dumps(changes))})
    assert merged == {"agent": changes}


@pytest.mark.req("V07")
@given(SHOPS, SHOPS)
def test_a_change_is_made_in_place_and_leaves_the_base_alone(first: Shop, second: Shop) -> None:
    """From one state to another, record by record, as tools do it."""
    before = whole(shop())
    database = BASE.with_changes(BASE.changes(first))
    for key in list(database.orders):
        if key not in second.orders:
            del database.orders[key]
    for key, order in second.orders.items():
        if key not in database.orders:
            database.orders[key] = order
            continue
        for name in type(order).model_fields:
            setattr(database.orders[key], name, getattr(order, name))
    database.device, database.lines = second.device, second.lines
    assert BASE.changes(database) == BASE.changes(second)
    assert sorted(database.orders) == sorted(second.orders)
    assert whole(BASE.with_changes({})) == before


@pytest.mark.req("V07")
def test_nothing_differs_where_nothing_was_changed_and_only_what_was_where_it_was() -> None:
    database = BASE.with_changes({})
    assert [order.status for order in database.orders.values()] == ["open"] * 3
    assert BASE.changes(database) == {}
    database.orders["b"].note = None
    database.device.sim = None
    assert BASE.changes(database) == {
        "orders": {"b": {"note": "$null"}}, "device": {"sim": "$null"},
    }  # fmt: skip
    del database.orders["c"]
    assert BASE.changes(database)["orders"] == {"b": {"note": "$null"}, "c": "$gone"}


@pytest.mark.req("V07")
def test_changes_that_change_nothing_are_none() -> None:
    """Somebody wrote them by hand; they must not make two equal databases differ."""
    database = BASE.with_changes({"orders": {"a": {"status": "open"}}, "device": {"on": True}})
    assert BASE.changes(database) == {}


@pytest.mark.req("V07")
@pytest.mark.parametrize(
    "changes", [{"order": {}}, {"orders": {"a": {"status": []}}}, {"device": {"on": "perhaps"}}]
)
def test_changes_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"there is no order|validation error"):
        BASE.changes(BASE.with_changes(changes))


@pytest.mark.req("V07")
def test_one_and_one_point_nought_differ_and_are_kept_apart() -> None:
    """tau2 hashes what its tools assigned, unchecked."""
    database = BASE.with_changes({})
    database.device = Device.model_construct(on=True, sim=Part.model_construct(name="s", price=2))
    changes = BASE.changes(database)
    assert changes == {"device": {"sim": {"name": "s", "price": 2}}}
    assert type(changes["device"]["sim"]["price"]) is int
    again = BASE.with_changes(changes)
    assert type(again.device.sim.price) is int
    assert BASE.changes(again) == changes
