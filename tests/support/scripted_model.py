"""An OpenAI-compatible endpoint over real HTTP that answers as a test scripted it.

Each request is answered by the next reply, the last of which stays. A reply is a function of the
request, so that an answer can depend on what was asked.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-judge-0123456789abcdef"
NAME = "judge-1-2026-01-01"
"""As what the model that was asked for as `judge-1` answers."""


@dataclass(frozen=True)
class Reply:
    """An HTTP answer; `body` is sent as JSON, or as it is where it is bytes."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the connection ends in the middle of the body."""


Request = dict[str, Any]
Answering = Callable[[Request], Reply]


class Provider:
    """The endpoint. Keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.authorizations: list[str | None] = []
        self.replies: list[Answering] = []
        self.delay_s = 0.0
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = provider.reply(body, self.headers["Authorization"])
                raw = isinstance(reply.body, bytes)
                payload = reply.body if raw else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                with suppress(ConnectionError):  # a client that waits no longer
                    self.end_headers()
                    self.wfile.write(payload[: len(payload) // 2] if reply.cut else payload)
                self.close_connection = reply.cut

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def reply(self, request: Request, authorization: str | None) -> Reply:
        with self._lock:
            self.authorizations.append(authorization)
            self.requests.append(request)
            answering = self.replies[min(len(self.requests), len(self.replies)) - 1]
        time.sleep(self.delay_s)
        return answering(request)

    def prompt(self, index: int = 0) -> str:
        """What the user's message of a request says."""
        return str(self.requests[index]["messages"][1]["content"])

    def system(self, index: int = 0) -> str:
        return str(self.requests[index]["messages"][0]["content"])


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that listens while the context is open."""
    scripted = Provider()
    thread = threading.Thread(target=scripted.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        scripted.server.shutdown()
        scripted.server.server_close()
        thread.join(5)


def completion(content: str | None, *, finish: str = "stop", **message: Any) -> Reply:
    """A chat completion with this content; `message`: further fields of its message."""
    said = {"role": "assistant", "content": content, **message}
    body = {
        "id": "c", "object": "chat.completion", "created": 1, "model": NAME,
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }  # fmt: skip
    return Reply(200, body)


def says(content: str | None, *, finish: str = "stop", **message: Any) -> Answering:
    """Always that completion."""
    return lambda _: completion(content, finish=finish, **message)


def fails(status: int, **headers: str) -> Answering:
    """An error that quotes the key, as providers do."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"message": f"bad key {KEY}", "type": "x", "code": None}
    return lambda _: Reply(status, {"error": error}, named)


def verdict(verdict: str = "pass", citations: tuple[str, ...] = ("a1",), why: str = "") -> str:
    """A criterion's answer."""
    answer = {"rationale": why or "It shows.", "verdict": verdict, "citations": list(citations)}
    return json.dumps(answer)
