"""Posting to the agent: the envelope of a turn in its variants, and what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from schemas.agent_response import ParsedResponse, ResponseRefused, parse_response
from services.cli.conformance.model import AgentTarget
from services.cli.conformance.recording import Run, Seen
from services.runtime.clock import Clock
from services.runtime.ids import decimal_id

PING = b'{"ping": true}'
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
AGENT_ID = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """What is different about a turn's envelope."""

    headers: bool = True
    """Proxy URL and ids in the headers; the run token always is."""
    body: bool = True
    """Proxy URL and ids in the body."""
    additive: bool = False
    """Fields and headers that the contract's first version does not know."""
    empty_state: bool = False
    ping: bool = False
    """A field named ping, though this is a turn."""
    auth: str = "right"
    """right, none or wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from one POST; `problem` is empty if that was a whole response."""

    status: int = 0
    body: bytes = b""
    problem: str = ""
    """timeout, unreachable, broken or too_large."""
    detail: str = ""
    elapsed_s: float = 0.0
    done_at: float = 0.0
    parsed: ParsedResponse | None = None
    refusal: str = ""
    """Why the body is no valid answer."""

    @property
    def ok(self) -> bool:
        """Answered 2xx."""
        return not self.problem and 200 <= self.status < 300

    @property
    def quality(self) -> int:
        """0: not answered, 1: answered 2xx, 2: with a valid answer."""
        return 0 if not self.ok else 1 if self.parsed is None else 2

    def __str__(self) -> str:
        if self.problem:
            return self.detail
        if self.ok and self.parsed is not None:
            return f"answered {self.status}: {_excerpt(self.parsed.final_response)}"
        if self.ok and self.refusal:
            return f"answered {self.status}, but {self.refusal}"
        return f"answered {self.status}: {_excerpt(self.body.decode(errors='replace'))}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that was posted: its variant, its proxy and its answer."""

    variant: Variant
    run: Run
    answer: Answer

    @property
    def calls(self) -> list[Seen]:
        """The tool calls that came before the answer."""
        return [one for one in self.run.calls if one.at <= self.answer.done_at]


class Poster:
    """Posts to one agent. Close it after use."""

    def __init__(self, target: AgentTarget, clock: Clock) -> None:
        self._target, self._clock = target, clock
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=target.sessions + 4, max_keepalive_connections=0),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ping(self, auth: str) -> Answer:
        """Post exactly the ping, with the `auth` of `Variant`."""
        headers = {"Content-Type": "application/json", **self._auth(auth)}
        return await self._post(PING, headers)

    async def turn(self, variant: Variant, run: Run) -> Turn:
        """Post a turn whose proxy is `run`."""
        task_id = decimal_id("task", run.run_id)
        headers = {**self._headers(variant, run, task_id), **self._auth(variant.auth)}
        body = orjson.dumps(self._body(variant, run, task_id))
        answer = _parsed(await self._post(body, headers))
        return Turn(variant, run, answer)

    def _auth(self, auth: str) -> dict[str, str]:
        name, value = self._target.auth_header, self._target.auth_value
        if not name or not value or auth == "none":
            return {}
        # Only the last character differs: a comparison of beginnings, or of schemes, shows.
        return {name: value if auth == "right" else value[:-1] + ("x" if value[-1] != "x" else "y")}

    def _headers(self, variant: Variant, run: Run, task_id: int) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "X-Pipelines-Run-Token": run.token}
        if variant.headers:
            headers |= {
                "X-Pipelines-Odyssey-Proxy-Url": run.proxy_url,
                "X-Pipelines-Run-Id": str(decimal_id("run", run.run_id)),
                "X-Pipelines-Task-Id": str(task_id),
                "X-Pipelines-Run-Token-Jti": run.run_id,
            }
        if variant.additive:
            headers |= {"Idempotency-Key": f"{run.run_id}-2", "X-Pipelines-Later-Header": "1"}
        return headers

    def _body(self, variant: Variant, run: Run, task_id: int) -> dict[str, Any]:
        state: Mapping[str, Any] = {} if variant.empty_state else self._target.task_input
        task: dict[str, Any] = {
            "task_id": task_id,
            "user_instruction": self._target.instruction,
            "input": state,
        }
        body: dict[str, Any] = {"agent_id": AGENT_ID, "input": task}
        if variant.body:
            body |= {
                "task_id": task_id,
                "run_id": decimal_id("run", run.run_id),
                "odyssey_proxy_url": run.proxy_url,
                "run_token_jti": run.run_id,
            }
        if variant.additive:
            task["later_field"] = {"nested": [1, None]}
            body["later_field"] = None
            body["session"] = {
                "id": run.run_id,
                "conversation": 1,
                "turn": 2,
                "history": [
                    {"role": "user", "content": "Good morning."},
                    {"role": "assistant", "content": "Good morning. How can I help?"},
                ],
            }
        if variant.ping:
            body["ping"] = True
        return body

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        started = self._clock.monotonic()
        status, received, problem, detail = 0, bytearray(), "", ""
        timeout_s = self._target.timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream(
                    "POST", self._target.url, content=body, headers=dict(headers), timeout=timeout_s
                ) as response,
            ):
                status = response.status_code
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > MAX_RESPONSE_BYTES:
                        problem = "too_large"
                        detail = f"answered with more than {MAX_RESPONSE_BYTES} bytes"
                        break
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem, detail = "unreachable", f"cannot connect to {self._target.url}: {error}"
        except (TimeoutError, httpx.TimeoutException):
            problem, detail = "timeout", f"no whole answer within {timeout_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem, detail = "broken", f"{type(error).__name__}: {error}"
        now = self._clock.monotonic()
        return Answer(status, bytes(received), problem, detail, now - started, now)


def _parsed(answer: Answer) -> Answer:
    """The answer with its response read as the platform reads it."""
    if not answer.ok:
        return answer
    parsed, refusal = None, ""
    try:
        parsed = parse_response(orjson.loads(answer.body))
    except orjson.JSONDecodeError as error:
        refusal = f"the body is not JSON: {error}: {_excerpt(answer.body.decode(errors='replace'))}"
    except ResponseRefused as error:
        refusal = str(error)
    return Answer(
        answer.status, answer.body, answer.problem, answer.detail, answer.elapsed_s,
        answer.done_at, parsed, refusal,
    )  # fmt: skip


def _excerpt(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 160 else one_line[:157] + "..."
