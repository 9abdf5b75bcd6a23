"""What the fuzzer sends: raw requests, from a seed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from services.tool_proxy.app import BASE
from services.tool_proxy.trace_docs import EXAMPLES

MIB = 1024 * 1024


@dataclass(slots=True)
class Case:
    """Bytes for one connection, and what has to come of them."""

    kind: str
    parts: list[bytes | float]
    """Sent one after another; a number waits so many seconds."""
    answers: int = 1
    """How many answers must come; 0: an answer or the end of the connection, whichever."""
    requests: int = 1
    leaves: bool = False
    """Closes at once, without reading."""
    allowed: frozenset[int] = field(default_factory=frozenset)
    """If not empty, the statuses that may come."""


@dataclass(frozen=True, slots=True)
class Who:
    """A session's token, as it is when a batch begins."""

    session_id: str
    jti: str
    token: str


class Generator:
    """Cases for some sessions. The same seed, tokens and number give the same cases."""

    def __init__(self, draw: random.Random, sessions: list[Who], strangers: list[str]) -> None:
        """`strangers`: tokens that open nothing."""
        self.r = draw
        self._sessions = sessions
        self._strangers = strangers
        kinds: dict[Callable[[], Case], int] = {
            self.valid: 12, self.trace: 8, self.body: 22, self.mutated: 12, self.garbage: 6,
            self.headers: 8, self.chunked: 6, self.lengths: 6, self.pipelined: 4, self.leaving: 5,
            self.slow: 1, self.token: 6, self.path: 6, self.large: 1,
        }  # fmt: skip
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def next(self) -> Case:
        """The next case."""
        return self.r.choices(self._kinds, self._weights)[0]()

    # Kinds of cases.

    def valid(self) -> Case:
        tool, arguments = self.r.choice([
            ("get_order", {"order_id": self.r.choice(["1", "2", "none"])}),
            ("add_note", {"text": "x" * self.r.randrange(50), "kind": "mail"}),
            ("answer", {"value": self.r.choice([1, "é", [], {"a": [None]}, "{", 1 << 63, -0.5])}),
        ])  # fmt: skip
        body = json.dumps(arguments).encode()
        return Case("valid", [self._request(body, path=f"/tools/{tool}")])

    def trace(self) -> Case:
        r = self.r
        event: object = r.choice(EXAMPLES)
        if r.random() < 0.3:
            event = {"events": [r.choice(EXAMPLES) for _ in range(r.randrange(102))]}
        if r.random() < 0.5:
            text = json.dumps(event)
            at = r.randrange(len(text))
            event_text = (
                text[:at] + r.choice(['"', "{", "}", "1", "x", "null", ""]) + text[at + 1 :]
            )
        else:
            event_text = json.dumps(event)
        return Case("trace", [self._request(event_text.encode(), path="/trace")])

    def body(self) -> Case:
        path = "/trace" if self.r.random() < 0.2 else ""
        return Case("body", [self._request(self._bad_body(), path=path)])

    def mutated(self) -> Case:
        data = bytearray(self._request(self._arguments()))
        for _ in range(self.r.randint(1, 8)):
            at = self.r.randrange(len(data))
            what = self.r.randrange(5)
            if what == 0:
                data[at] = self.r.randrange(256)
            elif what == 1:
                del data[at : at + self.r.randint(1, 20)]
            elif what == 2:
                data[at:at] = self.r.randbytes(self.r.randint(1, 20))
            elif what == 3:
                data[at:at] = data[at : at + 40]
            else:
                data[at:at] = self.r.choice([b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b" ", b":"])
            if not data:
                data += b"\n"
        return Case("mutated", [bytes(data)], answers=0)

    def garbage(self) -> Case:
        r = self.r
        data = r.choice([
            lambda: r.randbytes(r.randint(1, 3000)),
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + r.randbytes(200),
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + r.randbytes(30),
            lambda: b"GET / HTTP/0.9\r\n\r\n",
            lambda: b"GET /\r\n",
            lambda: b"\r\n" * r.randint(1, 2000),
            lambda: b"POST " + b"a" * r.choice([10, 70_000]) + b" HTTP/1.1\r\n\r\n",
            lambda: b"POST / HTTP/9.9\r\nHost: x\r\n\r\n",
            lambda: b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
            lambda: b"POST http://[::1 HTTP/1.1\r\n\r\n",
            lambda: b"{" * r.randint(1, 5000),
        ])()  # fmt: skip
        return Case("garbage", [data], answers=0)

    def headers(self) -> Case:
        r = self.r
        extra = r.choice([
            lambda: b"X-A: " + b"a" * r.choice([1000, 60_000, 70_000, 400_000]),
            lambda: b"\r\n".join(b"X-%d: 1" % n for n in range(r.choice([10, 500, 20_000]))),
            lambda: b"X-Pipelines-Actor-Id: " + self._bytes(r.choice([5, 70, 2000])),
            lambda: b"Idempotency-Key: " + self._bytes(r.choice([0, 5, 300])),
            lambda: b"Idempotency-Key: same",
            lambda: b"X-A: a\r\n b\r\n\tc",
            lambda: b"X-A\0B: c",
            lambda: b": nameless",
            lambda: b"X A : b",
            lambda: b"Content-Type: " + r.choice([
                b"text/html", b"application/json; charset=utf-16", b"", b"a;" * 2000,
                b'a; charset="',
                b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"\xff",
                b"a; charset*0=utf; charset*1=-8", b"a; charset*=utf-8''%ff%00",
            ]),
            lambda: b"Content-Encoding: " + r.choice([b"gzip", b"br", b"identity", b",,", b"\xff"]),
            lambda: b"Expect: " + r.choice([b"100-continue", b"200-ok"]),
            lambda: b"Connection: upgrade\r\nUpgrade: websocket",
            lambda: b"Connection: " + r.choice([b"close", b"\xff"]),
            lambda: b"Accept: " + self._bytes(20),
            lambda: b"Range: bytes=0-1",
            lambda: b"Host: y",
        ])()  # fmt: skip
        return Case("headers", [self._request(self._arguments(), extra)], answers=0)

    def chunked(self) -> Case:
        r = self.r
        body = self._arguments() if r.random() < 0.6 else self._bad_body()
        cuts = sorted(r.randrange(len(body) + 1) for _ in range(r.randint(0, 6)))
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        good = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"
        wire, answers = r.choice([
            (good, 1),
            (good[:-2] + b"X-Trailer: 1\r\nAuthorization: Bearer no\r\n\r\n", 1),
            (good.replace(b"\r\n", b";ext=" + b"a" * r.choice([5, 100_000]) + b"\r\n", 1), 0),
            (good[:-5], 0),
            (b"zz\r\n" + good, 0),
            (b"-1\r\n" + good, 0),
            (b"ffffffffffffffff1\r\n" + good, 0),
            (b"7fffffffffffffff\r\n" + good, 0),
            (good.replace(b"\r\n", b"\n"), 0),
            (b"%x\r\n" % (len(body) + 3) + body + b"\r\n0\r\n\r\n", 0),
        ])  # fmt: skip
        head = self._head(r.choice([b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked"]))
        return Case("chunked", [head + wire], answers=answers)

    def lengths(self) -> Case:
        r = self.r
        body = self._arguments()
        headers = r.choice([
            b"Content-Length: %d" % (len(body) - 1),
            b"Content-Length: %d" % (len(body) + r.randint(1, 50)),
            b"Content-Length: %d\r\nContent-Length: %d" % (len(body), len(body) + 1),
            b"Content-Length: %d\r\nContent-Length: %d" % (len(body), len(body)),
            b"Content-Length: %d, %d" % (len(body), len(body)),
            b"Content-Length: -1",
            b"Content-Length: +%d" % len(body),
            b"Content-Length: 0x10",
            b"Content-Length: " + b"9" * r.choice([8, 19, 20, 5000]),
            b"Content-Length: ",
            b"Content-Length: %d\r\nTransfer-Encoding: chunked" % len(body),
            b"Transfer-Encoding: chunked\r\nContent-Length: 0",
            b"Transfer-Encoding: identity\r\nContent-Length: %d" % len(body),
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: chunked, chunked",
            b"Transfer-Encoding: xchunked",
            b"X: y",
        ])  # fmt: skip
        return Case("lengths", [self._head(headers) + body], answers=0)

    def pipelined(self) -> Case:
        count = self.r.randint(2, 12)
        data = b"".join(self._request(self._arguments(), minor=1) for _ in range(count))
        if self.r.random() < 0.3:
            data += self.r.randbytes(50)
            return Case("pipelined", [data], answers=0, requests=count)
        return Case("pipelined", [data], answers=count, requests=count)

    def leaving(self) -> Case:
        data = self._request(self._arguments())
        return Case("leaving", [data[: self.r.randint(0, len(data))]], leaves=True, answers=0)

    def slow(self) -> Case:
        r = self.r
        data = self._request(self._arguments())
        if r.random() < 0.1:
            return Case("slow", [data[:-1], 1.3, data[-1:]])
        parts: list[bytes | float] = []
        for at in range(0, len(data), 60):
            parts += [data[at : at + 60], 0.005]
        return Case("slow", parts)

    def token(self) -> Case:
        token = self.r.choice(self._strangers)
        header = self.r.choice([b"Authorization: Bearer ", b"X-Pipelines-Run-Token: "])
        body = self._arguments()
        head = (
            b"POST %b/tools/get_order HTTP/1.1\r\nHost: x\r\n" % BASE.encode() + header
            + token.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        )  # fmt: skip
        return Case("token", [head + body], allowed=frozenset((401,)))

    def path(self) -> Case:
        r = self.r
        who = r.choice(self._sessions)
        path = r.choice([
            "", "/", "/tools", "/tools/", "//tools/get_order", "/tools/get_order/", "/trace/",
            "/tools/../tools/get_order", "/tools/%2e%2e/x", "/tools/a%2Fb", "/tools/%00",
            "/tools/%ff", "/tools/%", "/tools/%zz", "/tools/" + "n" * r.choice([128, 129, 5000]),
            "/tools/get%5Forder", "/tools/get_order?x=y", "/tools/get_order;a=b",
            "/tools/get_order#", f"/tools/{who.token}", "/runs//trace", "/runs/x/tools/get_order",
            f"/runs/{who.jti}/tools/no", f"/runs/{who.jti}", "/runs/%ff/trace", "/openapi.json",
            "/tools/é", "/tools/\u202e",
        ])  # fmt: skip
        method = r.choice([b"POST"] * 6 + [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE",
                                          b"post", b"X", b"PATCH"])  # fmt: skip
        data = self._request(self._arguments(), path=path, who=who)
        return Case("path", [data.replace(b"POST", method, 1)], answers=0)

    def large(self) -> Case:
        size = MIB + self.r.choice([-1, 0, 1, 4 * MIB])
        body = b'{"order_id": "1"' + b" " * (size - 17) + b"}"
        return Case("large", [self._request(body)])

    # Pieces of them.

    def _head(
        self, *headers: bytes, path: str = "", who: Who | None = None, minor: int | None = None
    ) -> bytes:
        r = self.r
        who = who or r.choice(self._sessions)
        base = BASE if r.random() < 0.5 else f"{BASE}/runs/{who.jti}"
        tool = r.choice(["get_order", "get_order", "add_note", "answer", "crash", "nothing"])
        path = BASE + path if path else f"{base}/tools/{tool}"
        minor = r.choice([1, 1, 1, 0]) if minor is None else minor
        name = r.choice(
            ["Authorization: Bearer", "AUTHORIZATION: bearer", "x-pipelines-run-token:"]
        )
        lines = [f"POST {path} HTTP/1.{minor}", "Host: x", f"{name} {who.token}"]
        return b"\r\n".join([*(line.encode() for line in lines), *headers]) + b"\r\n\r\n"

    def _request(
        self, body: bytes, *headers: bytes, path: str = "", who: Who | None = None,
        minor: int | None = None,
    ) -> bytes:  # fmt: skip
        length = b"Content-Length: %d" % len(body)
        return self._head(length, *headers, path=path, who=who, minor=minor) + body

    def _arguments(self) -> bytes:
        r = self.r
        value: object = r.choice([
            {"order_id": "1"}, {"order_id": r.choice(["2", "3", "", "é", "\0", "\U0001f600"])},
            {"text": "x" * r.randrange(60), "kind": r.choice(["call", "mail", "fax"])},
            {"value": self._value(0)}, {"order_id": 1}, {}, {"text": "undo"},
            {"value": r.choice(self._sessions).token}, {r.choice(self._sessions).token: 1},
            {"actor_id": "a/b", "order_id": "1"},
        ])  # fmt: skip
        return json.dumps(value, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")

    def _value(self, depth: int) -> object:
        r = self.r
        if depth > 5 or r.random() < 0.6:
            return r.choice([
                None, True, 0, -1, 1 << 63, (1 << 64) - 1, 1 << 64, 1.5, 1e308, 5e-324, "", "text",
                "\ud800", "\u2028", '{"a": 1}', "[", "\r\n", float("nan"), float("inf"), 10**400,
            ])  # fmt: skip
        if r.random() < 0.5:
            return [self._value(depth + 1) for _ in range(r.randrange(5))]
        keys = ["a", "b", "", "__proto__", "$ref", "é", "actor_id"]
        return {r.choice(keys): self._value(depth + 1) for _ in range(r.randrange(5))}

    def _bad_body(self) -> bytes:
        r = self.r
        depth = r.choice([90, 98, 99, 100, 101, 250, 1020, 5000, 100_000])
        return r.choice([
            lambda: b'{"value": ' + b"[" * depth + b"]" * depth + b"}",
            lambda: b'{"value":' * depth + b"1" + b"}" * depth,
            lambda: b"[" * depth,
            lambda: b'{"a": NaN}',
            lambda: b'{"a": [Infinity, -Infinity]}',
            lambda: b'{"value": 1' + b"0" * r.choice([18, 19, 20, 400, 5000, 100_000]) + b"}",
            lambda: b'{"value": -1e' + b"9" * r.choice([1, 3, 4, 3000]) + b"}",
            lambda: b'{"value": 0.' + b"1" * r.choice([20, 100_000]) + b"}",
            lambda: b'{"order_id": "1", "order_id": "2"}',
            lambda: b'{"value": {"a": 1, "\\u0061": 2}}',
            lambda: b'{"order_id": "\xff\xfe"}',
            lambda: b'{"order_id": "\xed\xa0\x80"}',
            lambda: b'{"order_id": "\xc0\xaf"}',
            lambda: b'{"order_id": "\\ud800\\u0041"}',
            lambda: b"\xef\xbb\xbf{}",
            lambda: '{"order_id": "1"}'.encode(r.choice(["utf-16", "utf-32", "utf-16-be"])),
            lambda: gzip.compress(b'{"order_id": "1"}', mtime=0),
            lambda: b"order_id=1&x=2",
            lambda: b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n",
            lambda: b"", lambda: b"null", lambda: b"[]", lambda: b'"x"', lambda: b"1",
            lambda: b"\0",
            lambda: b'{"order_id": "1"} x', lambda: b"{'order_id': '1'}", lambda: b'{"a": 1,}',
            lambda: b'{"a": /* */ 1}', lambda: b'{"a": 01}', lambda: b'{"a": "\n"}',
            lambda: b'{"k%d": 1}' % r.randrange(9), lambda: r.randbytes(r.randint(1, 400)),
            lambda: json.dumps({"value": self._value(0)}).encode(),
            lambda: json.dumps({f"k{n}": n for n in range(r.choice([10, 20_000]))}).encode(),
        ])()  # fmt: skip

    def _bytes(self, size: int) -> bytes:
        data = bytes(self.r.randrange(0x21, 0xFF) for _ in range(size))
        return data.replace(b"\x7f", b"a")
