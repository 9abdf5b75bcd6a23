"""HTTP to addresses that somebody else has chosen, guarded against reaching what is ours.

A name is resolved once; every address it has must be allowed; the connection is made to one of
the addresses that were checked. So an answer of the DNS that changes between check and connect
changes nothing. What is not on the public internet needs an entry in the operator's allow-list:
see services/runtime/addresses.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import aiohttp
import httpx
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict

from services.runtime.addresses import AllowList, TargetRefused, literal

MAX_REDIRECTS = 3
_REDIRECTS = (307, 308)
"""The two that repeat a POST; any other redirect would turn it into a GET."""
_KEPT_ACROSS_ORIGINS = ("accept", "content-type", "idempotency-key", "user-agent")
"""What another server than the registered one may see; credentials can be in any other header."""
_KEEPALIVE_S = 4.0
"""Shorter than servers have it (5 s and more), so that a connection is not closed by the other
side at the moment it is used again: a POST that fails so cannot safely be repeated."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From host and port to IP addresses. Raises OSError."""


class OutboundError(Exception):
    """There is no answer, or none that may be read. Names no header and no address."""


class NotConnected(OutboundError):
    """Nothing was sent: the name, the connection or TLS failed."""


class ConnectionBroken(OutboundError):
    """It may have been sent: what came back, if anything, was no whole HTTP answer."""


class TooManyRedirects(OutboundError):
    """More redirects in a row than are followed."""


class ResponseTooLarge(OutboundError):
    """The answer has more bytes than were allowed; it was not read any further."""


class ResponseEncoded(OutboundError):
    """The answer is compressed, which was not asked for."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """What the operating system makes of a name, hosts file and search domains included."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Answer:
    """An answer whose body has yet to be read. Close it in any case."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self.status = response.status
        _end_with_connection(response)

    @property
    def headers(self) -> Mapping[str, str]:
        """Whatever their case."""
        return self._response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises ConnectionBroken, ResponseTooLarge, ResponseEncoded."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            raise ResponseEncoded(encoding[:50])
        received = 0
        with _explained():
            async for chunk in self._response.content.iter_any():
                received += len(chunk)
                if received > self._max_bytes:
                    raise ResponseTooLarge(f"more than {self._max_bytes} bytes")
                yield chunk

    async def read(self) -> bytes:
        """The whole body; raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        """Give the connection back, or end it if there is more to come on it."""
        self._response.release()


class Outbound:
    """Sends requests to where they may go, and follows redirects that repeat a POST.

    It has no time limit of its own, keeps no cookies, and reads neither proxies nor credentials
    from its environment (`SSL_CERT_FILE` counts). Answers are asked for uncompressed, and refused
    otherwise, so that the bound on them is one on memory. A redirect to another origin takes no
    credentials along, and none leads from https to http. For use from one event loop.
    """

    def __init__(
        self,
        allow: AllowList,
        *,
        max_connections: int,
        max_response_bytes: int,
        resolve: Resolve = resolve_by_system,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._allow = allow
        self._max_connections = max_connections
        self._max_response_bytes = max_response_bytes
        self._resolve = resolve
        self._ssl_context = ssl_context or httpx.create_ssl_context()
        self._http: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Send a request; returning means that the answer's head is here.

        Raises:
            TargetRefused: the address, or where it redirects to, may not be called.
            NotConnected, ConnectionBroken, TooManyRedirects
        """
        sent = CIMultiDict(headers)
        sent["Accept-Encoding"] = "identity"
        target = check_url(self._allow, url)
        for _ in range(MAX_REDIRECTS + 1):
            with _explained():
                response = await self._client().request(
                    method, target, headers=sent, data=body or None, allow_redirects=False
                )
            location = response.headers.get("location")
            if method != "POST" or response.status not in _REDIRECTS or not location:
                return Answer(response, self._max_response_bytes)
            response.release()
            target = _redirected(self._allow, target, location, sent)
        raise TooManyRedirects(f"more than {MAX_REDIRECTS} in a row")

    async def close(self) -> None:
        """End every connection."""
        if self._http is not None:
            await self._http.close()

    def _client(self) -> aiohttp.ClientSession:
        # Made when it is first needed, as that has to be on the loop it is used from.
        if self._http is None:
            connector = aiohttp.TCPConnector(
                limit=self._max_connections,
                keepalive_timeout=_KEEPALIVE_S,
                use_dns_cache=False,
                resolver=_Resolver(self._allow, self._resolve),
                ssl=self._ssl_context,
            )
            self._http = aiohttp.ClientSession(
                connector=connector,
                # Sessions of different runs share it, and must not share what a server tells one.
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                headers={"User-Agent": "windtunnel"},
                auto_decompress=False,
                trust_env=False,
            )
        return self._http


class _Resolver(AbstractResolver):
    """Where aiohttp gets a name's addresses from: it connects to nothing else."""

    def __init__(self, allow: AllowList, resolve: Resolve) -> None:
        self._allow = allow
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._resolve(host, port)
        if not addresses:
            raise OSError(f"{host} has no address")
        for address in addresses:
            self._allow.check(host, port, address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to release."""


def check_url(allow: AllowList, text: str) -> yarl.URL:
    """Check what can be checked of a URL without resolving: scheme, form, literal addresses.

    Returns it as aiohttp reads it, so that there is no second opinion of what the host is.

    Raises:
        TargetRefused
    """
    try:
        url = yarl.URL(text)
        host, port = url.raw_host, url.port
    except ValueError:
        raise TargetRefused("the URL cannot be read") from None
    if url.scheme not in ("http", "https") or not host or port is None:
        raise TargetRefused("the URL must be http://HOST or https://HOST")
    if url.user is not None or url.password is not None:
        raise TargetRefused(f"{host}: credentials do not belong in a URL")
    address = literal(host)
    if address is not None:
        allow.check(host, port, address)
    return url


def _redirected(
    allow: AllowList, url: yarl.URL, location: str, headers: CIMultiDict[str]
) -> yarl.URL:
    """Where a redirect leads; takes out of `headers` what must not go there."""
    try:
        target = check_url(allow, str(url.join(yarl.URL(location))))
    except ValueError:
        raise TargetRefused("redirected to a URL that cannot be read") from None
    if url.scheme == "https" and target.scheme != "https":
        raise TargetRefused("redirected from https to http")
    if target.origin() != url.origin():
        for name in set(headers):
            if name.lower() not in _KEPT_ACROSS_ORIGINS:
                headers.popall(name, None)
        headers["Accept-Encoding"] = "identity"
    return target


def _end_with_connection(response: aiohttp.ClientResponse) -> None:
    """Have who reads the body hear of it when the connection is gone.

    aiohttp ends the connection when a later part of a body cannot be parsed, and leaves the body
    without an end.
    """
    connection, body = response.connection, response.content
    if connection is None or connection.protocol is None:
        return  # the whole answer is here

    def lost(_: object = None) -> None:
        if not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the connection ended in the body"))

    closed = connection.protocol.closed
    if closed is None:
        lost()
        return

    def whole() -> None:
        closed.remove_done_callback(lost)  # a connection that is kept outlives many answers

    closed.add_done_callback(lost)
    body.on_eof(whole)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorDNSError:
        raise NotConnected("its name cannot be resolved") from None
    except aiohttp.ClientSSLError:
        raise NotConnected("no TLS connection") from None
    except aiohttp.ClientConnectorError:
        raise NotConnected("no connection") from None
    except aiohttp.ClientError as error:
        raise ConnectionBroken(type(error).__name__) from None
