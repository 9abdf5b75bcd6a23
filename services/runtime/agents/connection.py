"""Whether an agent is there, lets us in, and nobody else (R17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from schemas.registry import AgentRegistration
from services.runtime.agents.exchange import AgentFailed, Answer, Exchanger, below, shown
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import SecretMissing, auth_headers, resolve
from services.runtime.clock import Clock, SystemClock

Verdict = Literal["ok", "warning", "failed"]
PING = b'{"ping": true}'
_WRONG = "not-the-configured-value"
_MAX_BYTES = 1024 * 1024
_CONNECTIONS = 2
_REFUSALS = (401, 403)


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to an agent and what became of it.

    Attributes:
        name: `ping`, `ping_wrong_auth`, `ping_no_auth`, `open`; or what another kind is asked.
        status: The HTTP status; None where no answer came.
        latency_ms: Milliseconds until the whole answer; 0 where nothing was asked.
        detail: What was found.
        hint: What to do about it; empty if nothing.
    """

    name: str
    status: int | None
    latency_ms: int
    verdict: Verdict
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """What was found out about an agent. Holds no secrets."""

    agent_id: str
    kind: str
    endpoint: str
    probes: tuple[Probe, ...]

    @property
    def reachable(self) -> bool:
        """Whether turns can be put to the agent: its first probe was answered as it should be."""
        return self.probes[0].verdict == "ok"

    @property
    def ok(self) -> bool:
        """Whether nothing failed; warnings are allowed."""
        return all(probe.verdict != "failed" for probe in self.probes)


async def test_connection(
    agent: AgentRegistration,
    timeout_s: float,
    exchanger: Exchanger | None = None,  # noqa: PT028 - not a test, for all its name
    clock: Clock | None = None,  # noqa: PT028
) -> ConnectionReport:
    """Ask an agent what can be asked without a turn. Never raises for what the agent does.

    An HTTP agent is pinged with its auth, then with a wrong value, then with none: the first must
    be answered 2xx and the others be refused with 401 or 403. Other kinds have probes of their own.

    Args:
        timeout_s: For each probe.
    """
    clock = clock or SystemClock()
    used = exchanger or Exchanger(_CONNECTIONS)
    try:
        probes = await _Tester(agent, timeout_s, used, clock).probes()
    finally:
        if used is not exchanger:
            await used.close()
    return ConnectionReport(agent.agent_id, agent.kind, shown(agent.endpoint), tuple(probes))


async def check_connection(
    agent: AgentRegistration, timeout_s: float, exchanger: Exchanger
) -> None:
    """Return when the first probe of `test_connection` is answered as it should be.

    Raises:
        AgentFailed, SecretMissing
    """
    await _Tester(agent, timeout_s, exchanger, SystemClock()).first()


class _Refused(AgentFailed):
    """An answer came, and it was not what it should be."""

    def __init__(self, status: int, detail: str, hint: str) -> None:
        super().__init__("error", "ping_refused", f"{detail}; {hint}" if hint else detail)
        self.status, self.found, self.hint = status, detail, hint


class _Tester:
    """The probes of one agent."""

    def __init__(
        self, agent: AgentRegistration, timeout_s: float, exchanger: Exchanger, clock: Clock
    ) -> None:
        self._agent, self._timeout_s = agent, timeout_s
        self._exchanger, self._clock = exchanger, clock

    async def probes(self) -> list[Probe]:
        if self._agent.kind == "code":
            detail = "it runs in a sandbox here: there is nothing to reach"
            return [Probe("sandbox", None, 0, "ok", detail)]
        probes = [await self._first_probe()]
        if self._agent.kind != "http" or probes[0].status is None:
            return probes
        if not self._agent.auth_header:
            probes.append(
                Probe(
                    "open", None, 0, "warning", "the endpoint is open: no auth is configured",
                    "anybody who reaches it can dispatch; check a bearer token there, and register "
                    "auth_header and auth_value_ref",
                )
            )  # fmt: skip
            return probes
        scheme, _, credential = auth_headers(self._agent)[self._agent.auth_header].partition(" ")
        wrong = f"{scheme} {_WRONG}" if credential else _WRONG
        probes.append(await self._outsider("ping_wrong_auth", {self._agent.auth_header: wrong}))
        probes.append(await self._outsider("ping_no_auth", {}))
        return probes

    async def first(self) -> int:
        """Ask as we would ask for a turn; returns the status.

        Raises:
            AgentFailed, SecretMissing
        """
        agent = self._agent
        auth = auth_headers(agent)
        if agent.kind == "openai":
            return await self._expect(below(agent.endpoint, "models"), auth, also=(404, 405))
        if agent.kind == "rasa":
            return await self._rasa(auth)
        answer = await self._ping(auth)
        if not answer.ok:
            quoted = Redactor(auth.values()).quote(answer.body)
            raise _Refused(
                answer.status,
                f"the ping was answered {answer.status}: {quoted}"
                if quoted
                else f"the ping was answered {answer.status}",
                _ping_hint(answer.status, bool(auth)),
            )
        return answer.status

    async def _first_probe(self) -> Probe:
        name = {"openai": "models", "rasa": "status"}.get(self._agent.kind, "ping")
        started = self._clock.monotonic()
        try:
            status = await self.first()
        except _Refused as error:
            return Probe(name, error.status, self._ms(started), "failed", error.found, error.hint)
        except AgentFailed as error:
            return Probe(
                name, None, self._ms(started), "failed", error.detail, _hint_for(error.code)
            )
        except SecretMissing as error:
            return Probe(name, None, 0, "failed", str(error), "set it where Windtunnel runs")
        return Probe(name, status, self._ms(started), "ok", f"answered {status}")

    async def _outsider(self, name: str, auth: Mapping[str, str]) -> Probe:
        """A ping that must be refused."""
        how = "a wrong auth value" if auth else "no auth header"
        started = self._clock.monotonic()
        try:
            answer = await self._ping(auth)
        except AgentFailed as error:
            detail = f"the ping with {how} was not answered: {error.detail}"
            return Probe(name, None, self._ms(started), "failed", detail, _hint_for(error.code))
        status, ms = answer.status, self._ms(started)
        if status in _REFUSALS:
            return Probe(name, status, ms, "ok", f"the ping with {how} was refused with {status}")
        if answer.ok:
            return Probe(
                name, status, ms, "failed",
                f"the ping with {how} was answered {status}: ping is answered before auth",
                "check the auth header first, then answer the ping, then parse the rest",
            )  # fmt: skip
        return Probe(
            name, status, ms, "failed",
            f"the ping with {how} was answered {status}, expected 401 or 403",
            "refuse a wrong or missing auth value with 401, before the body is looked at",
        )  # fmt: skip

    async def _ping(self, auth: Mapping[str, str]) -> Answer:
        headers = {"Content-Type": "application/json", **auth}
        return await self._exchanger.exchange(
            "POST", self._agent.endpoint, body=PING, headers=headers,
            timeout_s=self._timeout_s, max_bytes=_MAX_BYTES,
        )  # fmt: skip

    async def _rasa(self, auth: Mapping[str, str]) -> int:
        agent, settings = self._agent, self._agent.rasa
        channel = settings.channel if settings else "rest"
        status = await self._expect(below(agent.endpoint, f"webhooks/{channel}/"), auth)
        if settings is not None and settings.tracker:
            # Asks for the model too: without one every turn would fail.
            token = settings.token_ref and resolve(settings.token_ref, f"agent {agent.agent_id}")
            status = await self._expect(with_token(below(agent.endpoint, "status"), token), auth)
        return status

    async def _expect(self, url: str, auth: Mapping[str, str], also: tuple[int, ...] = ()) -> int:
        answer = await self._exchanger.exchange(
            "GET", url, headers=auth, timeout_s=self._timeout_s, max_bytes=_MAX_BYTES
        )
        if not answer.ok and answer.status not in also:
            raise _Refused(
                answer.status,
                f"{shown(url)} was answered {answer.status}",
                _get_hint(self._agent.kind, answer.status),
            )
        return answer.status

    def _ms(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)


def with_token(url: str, token: str | None) -> str:
    """A URL with Rasa's `token` parameter."""
    if not token:
        return url
    return f"{url}{'&' if '?' in url else '?'}token={quote(token, safe='')}"


def _ping_hint(status: int, has_auth: bool) -> str:
    if status in _REFUSALS:
        return (
            "check the auth header of its registration"
            if has_auth
            else "it wants an auth header: register auth_header and auth_value_ref"
        )
    if status in (404, 405):
        return "check the path of the endpoint; it must take POST"
    return "answer the ping right after auth, before the envelope is parsed"


def _get_hint(kind: str, status: int) -> str:
    if status in _REFUSALS:
        return "check the auth header or the token of its registration"
    if kind != "rasa":
        return "check the endpoint: it must be the base URL, such as https://host/v1"
    if status == 409:
        return "load a model into Rasa"
    return "start Rasa with --enable-api, and name the channel in its credentials"


def _hint_for(code: str) -> str:
    return {
        "timeout": "is it busy or still starting?",
        "unreachable": "start the agent, or correct its endpoint",
        "dns_failed": "correct the host of its endpoint",
        "tls_failed": "check its certificate; SSL_CERT_FILE names a private authority",
        "redirect": "register the URL that it redirects to",
    }.get(code, "")
