"""An agent on Python's standard library alone: what the contract asks for, and nothing else."""

from __future__ import annotations

import hmac
import json
import os
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ATTEMPTS = 4
RETRYABLE = (408, 429, 503)


def call_tool(proxy_url: str, run_token: str, name: str, arguments: dict[str, Any]) -> Any:
    """One tool call: the unwrapped response, or what went wrong as a result for the model."""
    for attempt in range(ATTEMPTS):
        request = urllib.request.Request(
            f"{proxy_url.rstrip('/')}/tools/{name}",
            data=json.dumps(arguments).encode(),
            headers={"Authorization": f"Bearer {run_token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["response"]
        except urllib.error.HTTPError as error:
            if error.code not in RETRYABLE or attempt == ATTEMPTS - 1:
                return {"error": error.read().decode(errors="replace")}
            backoff = min(4.0, 0.5 * 2**attempt) * random.uniform(1.0, 1.25)
            time.sleep(max(backoff, float(error.headers.get("Retry-After") or 0)))
    raise AssertionError("unreachable")


def answer(instruction: str, state: dict[str, Any], tool: Callable[..., Any]) -> str:
    """The agent itself."""
    named = re.search(r"(?:[A-Z]+-)?\d{3,}", instruction)
    order_id = state.get("order_id") or (named and named[0])
    if not order_id:
        return "Which order is it?"
    found = tool("get_order", {"order_id": order_id})
    told = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return f"Order {order_id}: {told}"


class Handler(BaseHTTPRequestHandler):
    """POST /dispatch."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        expected = f"Bearer {os.environ['AGENT_TOKEN']}"
        given = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(given.encode(), expected.encode()):
            return self.reply(401, {"error": "missing or invalid bearer token"})
        try:
            body = json.loads(raw)
        except ValueError:
            return self.reply(400, {"error": "the body is not JSON"})
        if body == {"ping": True}:
            return self.reply(200, {"ok": True})
        proxy_url = body.get("odyssey_proxy_url") or self.headers["X-Pipelines-Odyssey-Proxy-Url"]
        run_token = self.headers["X-Pipelines-Run-Token"]
        if not proxy_url or not run_token:
            return self.reply(400, {"error": "no proxy URL or no run token"})
        task = body.get("input") or {}

        def tool(name: str, arguments: dict[str, Any]) -> Any:
            return call_tool(proxy_url, run_token, name, arguments)

        text = answer(task.get("user_instruction") or "", task.get("input") or {}, tool)
        return self.reply(200, {"final_response": text})

    def reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the request line is all it would say."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT") or 0)), Handler)
    print(f"http://127.0.0.1:{server.server_port}/dispatch", flush=True)
    server.serve_forever()
