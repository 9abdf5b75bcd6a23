"""Orders in words. Only fields of known shape are used; anything else is a failed lookup."""

from __future__ import annotations

from typing import Any

from deploy.demo import phrases
from deploy.demo.tools import ToolFailed

_STATUS = {
    "processing": "being prepared",
    "in_transit": "on its way",
    "delivered": "delivered",
    "cancelled": "cancelled",
}


def status_words(order: dict[str, Any]) -> str:
    """The order's status. Raises ToolFailed for one that does not exist."""
    try:
        return _STATUS[order["status"]]
    except KeyError:
        raise ToolFailed("get_order") from None


def delivery_news(order: dict[str, Any]) -> str:
    """Where the order is and when it arrives. Raises ToolFailed for unusable fields."""
    order_id, words, arrives = order["order_id"], status_words(order), _day(order["arrives_on"])
    if order["status"] == "cancelled":
        return f"{order_id} is cancelled."
    if order["status"] == "delivered":
        return f"{order_id} was delivered on {arrives}."
    return f"{order_id} is {words} and should arrive on {arrives}."


def refund_news(order: dict[str, Any]) -> str:
    """What became of the order's refund. Raises ToolFailed for unusable fields."""
    refund = order["refund"]
    try:
        amount = phrases.money(refund["amount"], order["currency"])
        when, paid = _day(refund["settles_on"]), refund["status"] == "paid"
    except (KeyError, TypeError, ValueError):
        raise ToolFailed("get_order") from None
    fate = f"was paid out on {when}" if paid else f"is on its way, due by {when}"
    return f"The refund of {amount} for {order['order_id']} {fate}."


def _day(iso: str) -> str:
    try:
        return phrases.day(iso)
    except (TypeError, ValueError):
        raise ToolFailed("get_order") from None
