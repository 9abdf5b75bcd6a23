"""The step about the tool proxy: whether it can be reached."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlsplit

from services.cli.doctor.catalogue import BY_ID
from services.cli.doctor.context import Context
from services.cli.doctor.model import Settled, Step, Tell, failed, ok, skipped, warning
from services.cli.stack.directory import StackDirectory
from services.runtime.agents.exchange import AgentFailed, Answer, Exchanger

BASE = "/api/odyssey-proxy"
_PROBE = "/tools/__reachability_probe__"
_HEADERS = {"Authorization": "Bearer fake-token", "Content-Type": "application/json"}
_GRACE_S = 5.0


def proxy_steps(timeout_s: float) -> list[Step[Context]]:
    return [Step(("proxy",), _proxy, timeout_s=timeout_s + _GRACE_S)]


def probe_url(proxy: str) -> str:
    """The probe's URL for a proxy's base, with or without the path under which it serves."""
    base = proxy.rstrip("/")
    return (base if urlsplit(base).path else base + BASE) + _PROBE


def curl_line(url: str) -> str:
    """The same question as a shell command, for another machine."""
    headers = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in _HEADERS.items())
    return f"curl -sS -o /dev/null -w '%{{http_code}}\\n' -X POST {headers} -d '{{}}' {url}"


async def _proxy(context: Context, tell: Tell) -> None:
    proxy = context.request.proxy or _of_stack(context)
    if not proxy:
        directory = context.request.where.directory
        tell(skipped("proxy", f"no --proxy is given, and no stack runs in {directory}"))
        return
    url, mend = probe_url(proxy), BY_ID["proxy"].mend
    there = f"on the agent's machine, this has to print 401: {curl_line(url)}"
    exchanger = Exchanger(1)
    try:
        answer = await exchanger.exchange(
            "POST", url, headers=_HEADERS, timeout_s=context.request.timeout_s, body=b"{}"
        )
    except AgentFailed as error:
        raise Settled(failed("proxy", error.detail, mend, there)) from None
    finally:
        await exchanger.close()
    if answer.status != 401:
        detail = f"{url} answered {answer.status}, expected 401: it is not a tool proxy"
        raise Settled(failed("proxy", detail, mend, there))
    if _code(answer) != "token_invalid":
        detail = f"{url} answered 401, but not as Windtunnel's proxy does"
        tell(warning("proxy", detail, "see whether a gateway in between wants auth", there))
        return
    tell(ok("proxy", f"{url} answered 401, as it should", there))


def _of_stack(context: Context) -> str:
    info = StackDirectory(context.request.where.directory).read_info()
    return info.endpoints.get("tool_proxy-0", "") if info is not None else ""


def _code(answer: Answer) -> object:
    try:
        return json.loads(answer.body)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return None
