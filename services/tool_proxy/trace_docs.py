"""docs/trace-events.md, which `python -m services.tool_proxy.trace_docs` prints."""

from __future__ import annotations

import json
from typing import Any

from schemas import traces
from services.tool_proxy.openapi import TRACE_SCHEMA_PATH

EXAMPLES: tuple[dict[str, Any], ...] = (
    {"type": "reasoning", "payload": {"text": "Over 30 days old, so the policy forbids it."}},
    {"type": "reasoning", "payload": {"blocks": [{"type": "text", "text": "First, the order."}]}},
    {"type": "plan", "payload": {"steps": [
        {"text": "Look up the order", "status": "completed"}, "Offer a voucher",
    ]}},
    {"type": "handoff", "payload": {
        "from": "supervisor", "to": "supervisor/refunds", "reason": "a refund was asked for",
    }},
    {"type": "state", "payload": {"event": "flow_started", "flow_id": "check_order_status"}},
    {"type": "state", "payload": {
        "event": "flow_completed", "flow_id": "check_order_status", "flow_step_id": "tell_status",
    }},
    {"type": "state", "payload": {"event": "flow_cancelled", "flow_id": "verify_identity"}},
    {"type": "state", "payload": {"event": "flow_interrupted", "flow_id": "check_order_status"}},
    {"type": "state", "payload": {"event": "action_executed", "name": "action_check_status"}},
    {"type": "state", "payload": {
        "event": "slot_was_set", "name": "order_id", "value": "ORD-9981",
    }},
    {"type": "state", "payload": {
        "event": "pattern_clarification", "flow_ids": ["check_order_status", "track_shipment"],
    }},
    {"type": "state", "payload": {
        "event": "bot_uttered", "utter_name": "utter_order_delayed", "text": "It is late.",
        "buttons": [{"title": "Why?"}],
    }},
    {"type": "custom", "version": 1, "payload": {"name": "cache", "data": {"hit": True}}},
)  # fmt: skip

_INTRO = f"""# Trace events

Generated from `schemas/traces.py`. The JSON Schema is served by every tool proxy at
`{TRACE_SCHEMA_PATH}`.

An agent may report what its own runtime does, while it does it:

    POST {{odyssey_proxy_url}}/trace
    Authorization: Bearer <run_token>
    Content-Type: application/json

    {{"type": "reasoning", "version": 1, "payload": {{"text": "The order is late."}}}}

The answer is 202 `{{"accepted":true}}`, given when the event is durably in the trajectory; refusals
are those of [the error table](tool-proxy-errors.md). Run token, `X-Pipelines-Actor-Id`, rate limit
and size limit are those of tool calls: each request counts as one.

- **Order.** Events stand in the trajectory in the order in which they were answered, each with the
  number of tool calls before it. To keep an event in front of a call, wait for its answer.
- **Batches.** `{{"events": [...]}}` takes 1 to {traces.MAX_EVENTS} events: all, or none if one of
  them is invalid; they stand next to each other and in their order. After 503 `log_unavailable`
  send the whole batch again: what was written already is not written twice.
- **Versions.** `version` is that of the payload's shape, and 1 if it is left out. An unknown one is
  refused with `trace_version_unknown`.
- **Other keys** in a payload are kept. Beside `type`, `version` and `payload` there are none.
"""


def documentation() -> str:
    """The page as Markdown."""
    shapes = traces.json_schema()["$defs"]
    lines = [_INTRO]
    for kind in ("reasoning", "plan", "handoff", "state", "custom"):
        event = shapes[f"{kind.capitalize()}Event"]
        payload = event["properties"]["payload"]
        lines += [f"## `{kind}`", ""]
        if "oneOf" in payload:
            lines += [event["description"], ""]
        for ref in (option["$ref"] for option in payload.get("oneOf", [payload])):
            shape = shapes[ref.rpartition("/")[2]]
            if "oneOf" in payload:
                lines += [f"### `{shape['properties']['event']['const']}`", ""]
            lines += [shape["description"], "", *_fields(shape, shapes)]
        examples = [example for example in EXAMPLES if example["type"] == kind]
        lines += ["```json", *(json.dumps(example) for example in examples), "```", ""]
    return "\n".join(lines)


def _fields(shape: dict[str, Any], shapes: dict[str, Any]) -> list[str]:
    lines = ["| key | required | type | |", "|---|---|---|---|"]
    for name, field in shape["properties"].items():
        required = "yes" if name in shape.get("required", ()) else "no"
        meaning = field.get("description", "")
        lines.append(f"| `{name}` | {required} | {_type(field, shapes)} | {meaning} |")
    return [*lines, ""]


def _type(field: dict[str, Any], shapes: dict[str, Any]) -> str:
    if "const" in field:
        return f'`"{field["const"]}"`'
    if "enum" in field:
        return ", ".join(f'`"{value}"`' for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(option, shapes) for option in field["anyOf"])
    if ref := field.get("$ref", ""):
        name = ref.rpartition("/")[2]
        if name == "JsonValue":
            return "any JSON value"
        inner = shapes[name]["properties"]
        return "{" + ", ".join(f"{key}: {_type(inner[key], shapes)}" for key in inner) + "}"
    if field.get("type") == "array":
        return f"array of ({_type(field['items'], shapes)})"
    if field.get("pattern"):
        return "actor path"
    return str(field.get("type", "any JSON value"))


if __name__ == "__main__":
    print(documentation(), end="")
