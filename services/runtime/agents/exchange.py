"""One HTTP exchange with an agent, bounded in every way.

In time, connecting and slow bytes included; in size; redirects are not followed, so that no agent
leads us elsewhere; nothing is decompressed, so that nothing can swell; cookies are not kept, so
that no session is told by another's. Only a connection that was never made is tried again.

Unless told otherwise an exchange has a connection of its own. A kept one may be closing at the
other end just then, and nobody could tell that from an agent that died of what it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import httpx

MAX_RESPONSE_BYTES = 4 * 1024 * 1024
_CONNECT_PAUSES_S = (0.2, 0.5)
_CONNECT_TIMEOUT_S = 30
_KEEP_ALIVE_S = 4.0
"""Less than the 5 s after which common servers close."""
_MAX_HEADER_BYTES = 64 * 1024
_MAX_HEADERS = 128
_PLAIN = ("", "identity")


class AgentFailed(Exception):
    """The agent did not give a usable answer; `outcome` is timeout or error."""

    def __init__(self, outcome: str, code: str, detail: str) -> None:
        self.outcome, self.code, self.detail = outcome, code, detail
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status. Headers by lower-case name, the first of each."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Exchanger:
    """Talks HTTP to agents. One per process; safe for any number of exchanges at once."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        body: bytes | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        keep_alive: bool = False,
    ) -> Answer:
        """Send a request and read the whole answer.

        `keep_alive` is for requests that their sender repeats when the connection breaks.

        Raises:
            AgentFailed: `timeout`; or an error of code unreachable, dns_failed, tls_failed,
                endpoint_invalid, connection_broken, response_not_http, redirect,
                content_encoding or response_too_large. The detail names the URL without its query.
        """
        if keep_alive not in self._sessions:
            self._sessions[keep_alive] = self._new_session(keep_alive)
        session = self._sessions[keep_alive]
        try:
            async with asyncio.timeout(timeout_s):
                for pause_s in _CONNECT_PAUSES_S:
                    try:
                        return await self._once(session, method, url, headers, body, max_bytes)
                    except aiohttp.ClientSSLError:
                        raise
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(pause_s)
                return await self._once(session, method, url, headers, body, max_bytes)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise AgentFailed(
                    "error", "unreachable", f"cannot connect to {shown(url)} in time"
                ) from None
            raise AgentFailed("timeout", "timeout", f"no answer within {timeout_s:g} s") from None
        # A strange answer sets off as strange errors: ValueError from a parser, OSError from TLS.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            _failed(error, shown(url))

    async def _once(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        max_bytes: int,
    ) -> Answer:
        async with session.request(
            method,
            url,
            data=body,
            headers={"Accept-Encoding": "identity", **headers},
            allow_redirects=False,
        ) as response:
            if 300 <= response.status < 400:
                raise AgentFailed(
                    "error",
                    "redirect",
                    f"answered {response.status}; redirects are not followed",
                )
            coding = response.headers.get("Content-Encoding", "").strip().lower()
            if coding not in _PLAIN:
                raise AgentFailed(
                    "error",
                    "content_encoding",
                    f"the answer is compressed ({coding[:40]!r}), though identity was asked for",
                )
            received = bytearray()
            if (response.content_length or 0) <= max_bytes:
                async for chunk in response.content.iter_any():
                    received += chunk
                    if len(received) > max_bytes:
                        break
            if len(received) > max_bytes or (response.content_length or 0) > max_bytes:
                raise AgentFailed("error", "response_too_large", f"more than {max_bytes} bytes")
            found = {
                name.lower(): value for name, value in reversed(list(response.headers.items()))
            }
            return Answer(response.status, bytes(received), found)

    def _new_session(self, keep_alive: bool) -> aiohttp.ClientSession:
        keeping: dict[str, Any] = (
            {"keepalive_timeout": _KEEP_ALIVE_S} if keep_alive else {"force_close": True}
        )
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            **keeping,
            # certifi's roots, or those that SSL_CERT_FILE names.
            ssl=httpx.create_ssl_context(),
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )


def shown(url: str) -> str:
    """A URL for people, without what may hold a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the endpoint"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def below(endpoint: str, path: str) -> str:
    """The URL of a path below an endpoint, whose query is kept."""
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}", fragment=""))


def _failed(error: Exception, where: str) -> NoReturn:
    """Raises the AgentFailed for an error. What a library quotes of an answer is not repeated."""
    if isinstance(error, aiohttp.ClientSSLError):
        failed = ("tls_failed", f"no TLS connection to {where}: {_reason(error)}")
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        failed = ("dns_failed", f"cannot resolve the host of {where}")
    elif isinstance(error, aiohttp.ClientConnectorError):
        failed = ("unreachable", f"cannot connect to {where}: {_reason(error)}")
    elif isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        failed = ("endpoint_invalid", f"{where} is no URL that can be posted to")
    elif isinstance(error, aiohttp.ClientResponseError | ValueError):
        failed = ("response_not_http", f"{where} answered what is not HTTP, or headers too large")
    else:
        failed = ("connection_broken", f"{type(error).__name__} while talking to {where}")
    raise AgentFailed("error", *failed) from None


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate cannot be verified"
    return error.os_error.strerror or type(error.os_error).__name__
