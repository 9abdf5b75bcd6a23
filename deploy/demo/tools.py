"""The agent's tools: HTTP calls to the per-run proxy, with what they may do to fail.

Two kinds of trouble are kept apart. A transient condition of the platform (429, 503, a broken
connection) is the same call again, under the same idempotency key. A tool that fails (an error in
the response, a 4xx or 5xx, text or missing fields where an object was promised) is a failed call;
another attempt is a new one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

TRANSPORT_ATTEMPTS = 4
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 4.0
RETRY_PAUSE_S = 0.05

# What a tool says about the request itself; asking again would not help.
_DECISIONS = frozenset({"not_found", "conflict", "invalid_amount"})

# Without these the answer cannot be used: a partial or malformed result.
REQUIRED_FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "find_customer": {"customer_id": str},
    "verify_identity": {"verified": bool},
    "get_order": {
        "order_id": str,
        "customer_id": str,
        "status": str,
        "items": list,
        "total": (int, float),
        "currency": str,
        "arrives_on": str,
        "address": str,
        "refund": (dict, type(None)),
    },
    "list_orders": {"orders": list},
    "issue_refund": {"refund_id": str, "amount": (int, float), "settles_on": str},
    "cancel_order": {"status": str},
    "change_address": {"address": str},
    "send_invoice": {"invoice_id": str},
    "open_case": {"case_id": str},
    "add_case_note": {"notes": int},
    "list_case_notes": {"notes": list},
}


class ToolFailed(Exception):
    """A tool could not be used after all attempts."""


class ToolDeclined(Exception):
    """The tool works and says no; `code` tells why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Tools:
    """The tools of one turn. Keys are deterministic, so a turn posted again repeats its calls.

    Args:
        key_prefix: Identifies session and turn in the idempotency keys.
        attempts: Calls of a tool, the first included, before it counts as failed.
        sleep: Waits between attempts, in seconds.
    """

    client: httpx.AsyncClient
    proxy_url: str
    run_token: str
    key_prefix: str
    attempts: int
    sleep: Callable[[float], Awaitable[object]]
    transcript: list[dict[str, Any]] = field(default_factory=list)
    _ordinal: int = 0
    _asked_to_wait_s: float = 0.0

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; a failed call is repeated as a new one.

        Raises:
            ToolDeclined: the tool refused the request as such.
            ToolFailed: every attempt failed.
        """
        for attempt in range(self.attempts):
            if attempt:
                await self.pause()
            result = await self.call_once(name, **arguments)
            if result is not None:
                return result
        raise ToolFailed(name)

    async def pause(self) -> None:
        """Wait before another attempt, as long as the tool asked for when it failed."""
        await self.sleep(min(max(RETRY_PAUSE_S, self._asked_to_wait_s), LONGEST_WAIT_S))

    async def call_once(self, name: str, **arguments: Any) -> dict[str, Any] | None:
        """Make one call; None if it failed.

        Raises:
            ToolDeclined: the tool refused the request as such.
        """
        self._ordinal += 1
        self._asked_to_wait_s = 0.0
        response = await self._post(name, arguments, f"{self.key_prefix}:{self._ordinal}")
        self._record(name, arguments, response)
        if not isinstance(response, dict):
            return None
        error = response.get("error")
        if isinstance(error, dict):
            code = str(error.get("code", ""))
            if code in _DECISIONS:
                raise ToolDeclined(code)
            wait = error.get("retry_after")
            self._asked_to_wait_s = float(wait) if isinstance(wait, int | float) else 0.0
            return None
        required = REQUIRED_FIELDS[name].items()
        usable = all(key in response and isinstance(response[key], kind) for key, kind in required)
        return response if usable else None

    async def _post(self, name: str, arguments: Mapping[str, Any], key: str) -> Any:
        """The unwrapped response, or an `{"error": ...}` object for what was no answer."""
        trouble = "no answer"
        for attempt in range(TRANSPORT_ATTEMPTS):
            wait = FIRST_WAIT_S * 2**attempt
            try:
                reply = await self.client.post(
                    f"{self.proxy_url.rstrip('/')}/tools/{name}",
                    json=arguments,
                    headers={
                        "Authorization": f"Bearer {self.run_token}",
                        "Idempotency-Key": key,
                    },
                )
            except httpx.TransportError as error:
                trouble = type(error).__name__
            else:
                if reply.status_code not in (429, 503):
                    return _unwrap(reply)
                trouble = f"HTTP {reply.status_code}"
                wait = _retry_after(reply, wait)
            if attempt + 1 < TRANSPORT_ATTEMPTS:
                await self.sleep(min(wait, LONGEST_WAIT_S))
        return {"error": {"code": "unreachable", "message": trouble}}

    def _record(self, name: str, arguments: Mapping[str, Any], response: Any) -> None:
        call_id = f"call_{self._ordinal}"
        content = response if isinstance(response, str) else json.dumps(response)
        self.transcript += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "name": name, "arguments": dict(arguments)}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": content},
        ]


def _unwrap(reply: httpx.Response) -> Any:
    try:
        body = reply.json()
    except ValueError:
        body = None
    if reply.is_success and isinstance(body, dict) and "response" in body:
        return body["response"]
    return {"error": {"code": "bad_reply", "message": f"HTTP {reply.status_code}"}}


def _retry_after(reply: httpx.Response, otherwise: float) -> float:
    try:
        return max(0.0, float(reply.headers["Retry-After"]))
    except (KeyError, ValueError):
        return otherwise
