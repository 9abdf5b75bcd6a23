"""uvicorn's HTTP/1.1 protocol, with bounds where it has none.

Its parser takes request heads of any length, waits for them forever, and goes on reading what
nobody wants after a refusal. Each of these lets one client take memory or a connection for good.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 30.0
LINGER_BYTES = 8 * 1024 * 1024
LINGER_S = 10.0

_TOO_LARGE = b"The request line and headers are too large."


class HeadTooLarge(Exception):
    """Raised through the parser, which gives up on the connection."""


class BoundedHttp(HttpToolsProtocol):
    """Bounds the head's size and time, and what is read after the answer was sent.

    A client that is refused before it has sent its whole body may send the rest of it, up to a
    bound, so that it gets to read the answer instead of a reset connection. Trailers are dropped:
    nothing that comes after the body may pass for a header.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._head_bytes = 0
        self._callbacks = 0
        self._silent_bytes = 0
        self._unwanted_bytes = 0
        self._in_head = False
        self._deadline: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._close_in(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep_open()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        callbacks = self._callbacks
        super().data_received(data)
        # The parser keeps what it has of an unfinished header or chunk extension to itself.
        self._silent_bytes = self._silent_bytes + len(data) if callbacks == self._callbacks else 0
        if self._silent_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._head_bytes = self._silent_bytes
            self.send_400_response("")
        idle = self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)
        if idle and self._deadline is None and not self.transport.is_closing():
            self._close_in(HEAD_TIMEOUT_S)

    def on_message_begin(self) -> None:
        self._callbacks += 1
        self._head_bytes = self._unwanted_bytes = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._callbacks += 1
        self._in_head = False
        self._keep_open()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._callbacks += 1
        super().on_body(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > LINGER_BYTES:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._callbacks += 1
        super().on_message_complete()
        if self.cycle.response_complete:
            self.cycle.more_body = False
            self._keep_open()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._close_in(LINGER_S)

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().send_400_response(msg)
            return
        lines = [
            b"HTTP/1.1 431 Request Header Fields Too Large",
            b"content-type: text/plain; charset=utf-8",
            b"content-length: %d" % len(_TOO_LARGE),
            b"connection: close",
            b"",
            _TOO_LARGE,
        ]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._callbacks += 1
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def _close_in(self, seconds: float) -> None:
        self._keep_open()
        self._deadline = self.loop.call_later(seconds, self._close)

    def _keep_open(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self, *_: Any) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
