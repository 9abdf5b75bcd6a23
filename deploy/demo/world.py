"""The world `order_support`: what the demo agent's tools do, over plain JSON state.

Nothing here knows about failures, scenarios or the agent. Delivery and refund status follow from
the world's clock, so a conversation three days later finds parcels delivered and money paid out.
Issuing a refund twice really pays twice: keeping to one is the agent's duty, not the tool's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deploy.demo.state import initial_state
from services.tool_proxy.world import Context, ToolError, World

REFUND_SETTLES_AFTER = timedelta(days=5)

world = World("order_support", initial_state=initial_state())


def _today(ctx: Context) -> str:
    return ctx.now.date().isoformat()


def _customer(ctx: Context, customer_id: str) -> dict[str, Any]:
    customer: dict[str, Any] | None = ctx.state["customers"].get(customer_id)
    if customer is None:
        raise ToolError("not_found", f"no customer {customer_id}")
    return customer


def _order(ctx: Context, order_id: str, customer_id: str | None = None) -> dict[str, Any]:
    order: dict[str, Any] | None = ctx.state["orders"].get(order_id)
    if order is None or customer_id not in (None, order["customer_id"]):
        raise ToolError("not_found", f"no such order: {order_id}")
    return order


def _status(ctx: Context, order: dict[str, Any]) -> str:
    if order["cancelled"]:
        return "cancelled"
    if _today(ctx) < order["ships_on"]:
        return "processing"
    return "in_transit" if _today(ctx) < order["arrives_on"] else "delivered"


def _refund(ctx: Context, order_id: str) -> dict[str, Any] | None:
    """The order's last refund as the customer sees it: pending until it settles."""
    for refund in reversed(ctx.state["refunds"]):
        if refund["order_id"] == order_id:
            paid = refund["settles_on"] <= _today(ctx)
            return {**refund, "status": "paid" if paid else "pending"}
    return None


@world.tool
def find_customer(ctx: Context, email: str) -> dict[str, Any]:
    """Find the customer account that belongs to an email address."""
    for customer_id, customer in ctx.state["customers"].items():
        if customer["email"] == email.strip().lower():
            return {"customer_id": customer_id, "first_name": customer["first_name"]}
    raise ToolError("not_found", "no account with that email address")


@world.tool
def verify_identity(
    ctx: Context, customer_id: str, postcode: str = "", code: str = ""
) -> dict[str, Any]:
    """Check a caller's postcode or six-digit verification code against the account."""
    customer = _customer(ctx, customer_id)
    given = "".join(postcode.split()).upper()
    verified = (given != "" and given == "".join(customer["postcode"].split())) or (
        code != "" and code == customer["verification_code"]
    )
    return {"customer_id": customer_id, "verified": verified}


@world.tool
def get_order(ctx: Context, order_id: str) -> dict[str, Any]:
    """Look up one order: status, items, total, dates, address and its last refund."""
    order = _order(ctx, order_id)
    return {
        "order_id": order_id,
        "customer_id": order["customer_id"],
        "status": _status(ctx, order),
        "items": order["items"],
        "total": order["total"],
        "currency": order["currency"],
        "placed_on": order["placed_on"],
        "arrives_on": order["arrives_on"],
        "address": order["address"],
        "courier_note": order["courier_note"],
        "refund": _refund(ctx, order_id),
    }


@world.tool
def list_orders(ctx: Context, customer_id: str) -> dict[str, Any]:
    """List a customer's orders, oldest first, with status and total."""
    _customer(ctx, customer_id)
    return {
        "orders": [
            {"order_id": order_id, "status": _status(ctx, order), "total": order["total"]}
            for order_id, order in ctx.state["orders"].items()
            if order["customer_id"] == customer_id
        ]
    }


@world.tool
def issue_refund(ctx: Context, order_id: str, customer_id: str, amount: float) -> dict[str, Any]:
    """Pay an amount back to the customer for a delivered order. Cannot be undone."""
    order = _order(ctx, order_id, customer_id)
    if not 0 < amount <= order["total"]:
        raise ToolError("invalid_amount", f"expected an amount up to {order['total']}")
    refund = {
        "refund_id": f"RF-{len(ctx.state['refunds']) + 1:04d}",
        "order_id": order_id,
        "amount": amount,
        "issued_on": _today(ctx),
        "settles_on": (ctx.now + REFUND_SETTLES_AFTER).date().isoformat(),
    }
    ctx.state["refunds"].append(refund)
    order["refunded"] = round(order["refunded"] + amount, 2)
    return dict(refund)


@world.tool
def cancel_order(ctx: Context, order_id: str, customer_id: str) -> dict[str, Any]:
    """Cancel an order that has not left the warehouse. Cannot be undone."""
    order = _order(ctx, order_id, customer_id)
    if _status(ctx, order) != "processing":
        raise ToolError("conflict", f"{order_id} is {_status(ctx, order)}")
    order["cancelled"] = True
    return {"order_id": order_id, "status": "cancelled"}


@world.tool
def change_address(ctx: Context, order_id: str, customer_id: str, address: str) -> dict[str, Any]:
    """Change the delivery address of an order that has not left the warehouse."""
    order = _order(ctx, order_id, customer_id)
    if _status(ctx, order) != "processing":
        raise ToolError("conflict", f"{order_id} is {_status(ctx, order)}")
    order["address"] = address
    return {"order_id": order_id, "address": address}


@world.tool
def send_invoice(ctx: Context, order_id: str, customer_id: str) -> dict[str, Any]:
    """Email a copy of an order's invoice to the address on the customer's account."""
    _order(ctx, order_id, customer_id)
    invoice_id = f"INV-{order_id[4:]}-{len(ctx.state['invoices']) + 1}"
    ctx.state["invoices"].append({"invoice_id": invoice_id, "order_id": order_id})
    return {"invoice_id": invoice_id, "order_id": order_id}


@world.tool
def open_case(ctx: Context, customer_id: str, subject: str, order_id: str = "") -> dict[str, Any]:
    """Open a case for a human colleague."""
    _customer(ctx, customer_id)
    case_id = f"CASE-{len(ctx.state['cases']) + 1:04d}"
    ctx.state["cases"].append(
        {"case_id": case_id, "customer_id": customer_id, "order_id": order_id, "subject": subject}
    )
    return {"case_id": case_id}


@world.tool
def add_case_note(ctx: Context, customer_id: str, text: str, order_id: str = "") -> dict[str, Any]:
    """Leave a note about a customer's request for whoever helps this customer next."""
    customer = _customer(ctx, customer_id)
    customer["notes"].append({"written_on": _today(ctx), "order_id": order_id, "text": text})
    return {"notes": len(customer["notes"])}


@world.tool
def list_case_notes(ctx: Context, customer_id: str) -> dict[str, Any]:
    """The notes about a customer's earlier requests, oldest first."""
    return {"notes": _customer(ctx, customer_id)["notes"]}
