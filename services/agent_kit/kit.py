"""What an agent needs to speak the runtime contract, in one file of the standard library alone.

Import it, or copy it into an upload as it is; it runs on Python 3.9 and later. In short:

    with set_current(Envelope.from_request(body, headers)):
        order = proxy_call("get_order", {"order_id": "4521"})

Everything bound with `set_current` and `actor` lives in context variables. They follow `await` and
`asyncio.to_thread` by themselves; threads and executors need `run_async_in_thread` or `bound`.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import enum
import functools
import http.client
import json
import os
import random
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

T = TypeVar("T")

ATTEMPTS = 4
MAX_PAUSE_S = 4.0
MAX_RETRY_AFTER_S = 60.0
"""A `Retry-After` up to this is waited for; with a longer one the call fails at once."""
MAX_BODY_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = MAX_BODY_BYTES + 64 * 1024
_HIDDEN = "[redacted]"


class EnvelopeError(ValueError):
    """A dispatch lacks a field, or nothing is bound here; the message names which. No secrets."""


class ProxyError(Exception):
    """A call that the proxy refused, or that never reached it.

    `code` is a code of the proxy's error table, `http_NNN` where an answer had none, or one of
    `unreachable`, `connection_broken`, `timeout`, `response_invalid`. `status` is None where there
    was no answer. `retryable`: the condition may pass, though the attempts are used up.
    `details` is what the proxy adds, such as which argument broke which rule of the schema.
    """

    def __init__(
        self, code: str, status: int | None, message: str, retryable: bool, details: Any = None
    ) -> None:
        super().__init__(code, status, message, retryable, details)
        self.code, self.status, self.message = code, status, message
        self.retryable, self.details = retryable, details

    def __str__(self) -> str:
        more = "" if self.details is None else f" {json.dumps(self.details)[:1000]}"
        status = "" if self.status is None else f" ({self.status})"
        return f"{self.code}{status}: {self.message}{more}"


@dataclasses.dataclass(frozen=True)
class Session:
    """Where a turn stands in its conversation; a platform may leave it out."""

    id: str
    conversation: int
    turn: int
    history: tuple[Mapping[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Envelope:
    """One dispatch: what the user says now, and where its tools are called.

    `task_input` is the task's free-form state, `{}` if it has none. `run_token` is the secret that
    authorises tool calls; it is never shown. The ids and `run_token_jti` are safe to log.
    """

    task_id: int
    run_id: int
    user_instruction: str
    task_input: Mapping[str, Any]
    proxy_url: str
    run_token: str = dataclasses.field(repr=False)
    run_token_jti: str
    agent_id: int | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        _check_url(self.proxy_url)
        # Checked here, because what refuses such a header later would quote it.
        if not self.run_token or not all("!" <= sign <= "~" for sign in self.run_token):
            raise EnvelopeError("the run token must be printable ASCII without spaces")

    @classmethod
    def from_request(cls, body: Any, headers: Mapping[str, str]) -> Envelope:
        """The envelope of a dispatch over HTTP: its decoded body, completed from its headers.

        Raises:
            EnvelopeError: naming the field that is missing or malformed.
        """
        if not isinstance(body, Mapping):
            raise EnvelopeError("the body must be a JSON object")
        lowered = {name.lower(): value for name, value in headers.items()}

        def field(name: str, header: str) -> Any:
            value = body.get(name)
            if value is None:
                value = lowered.get(header.lower())
            return _present(value, f"{name} (or header {header})")

        task = _object(body.get("input"), "input")
        return cls(
            task_id=_decimal(field("task_id", "X-Pipelines-Task-Id"), "task_id"),
            run_id=_decimal(field("run_id", "X-Pipelines-Run-Id"), "run_id"),
            agent_id=None
            if body.get("agent_id") is None
            else _decimal(body["agent_id"], "agent_id"),
            proxy_url=_text(
                field("odyssey_proxy_url", "X-Pipelines-Odyssey-Proxy-Url"), "odyssey_proxy_url"
            ),
            run_token=_text(field("run_token", "X-Pipelines-Run-Token"), "run_token"),
            run_token_jti=_text(
                field("run_token_jti", "X-Pipelines-Run-Token-Jti"), "run_token_jti"
            ),
            session=_session(body.get("session")),
            **_instruction(task, "input."),
        )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Envelope:
        """The envelope of a dispatch in code mode, from the environment's variables.

        Raises:
            EnvelopeError: naming the variable that is missing or malformed.
        """
        found = os.environ if environ is None else environ

        def variable(name: str) -> str:
            return _text(_present(found.get(name), name), name)

        try:
            payload = json.loads(variable("_PIPELINES_TASK_INPUT_JSON"))
        except json.JSONDecodeError:
            raise EnvelopeError("_PIPELINES_TASK_INPUT_JSON is not JSON") from None
        task = _object(payload, "_PIPELINES_TASK_INPUT_JSON")
        return cls(
            task_id=_decimal(variable("PIPELINES_TASK_ID"), "PIPELINES_TASK_ID"),
            run_id=_decimal(variable("PIPELINES_RUN_ID"), "PIPELINES_RUN_ID"),
            proxy_url=variable("PIPELINES_ODYSSEY_PROXY_URL"),
            run_token=variable("PIPELINES_RUN_TOKEN"),
            run_token_jti=variable("PIPELINES_RUN_TOKEN_JTI"),
            session=_session(task.get("session")),
            **_instruction(task, "_PIPELINES_TASK_INPUT_JSON: "),
        )


_ENVELOPE: contextvars.ContextVar[Envelope | None] = contextvars.ContextVar(
    "agent_kit_envelope", default=None
)
_ACTOR: contextvars.ContextVar[str | None] = contextvars.ContextVar("agent_kit_actor", default=None)


@contextmanager
def set_current(envelope: Envelope) -> Iterator[Envelope]:
    """Bind the dispatch whose tools are called within the block."""
    token = _ENVELOPE.set(envelope)
    try:
        yield envelope
    finally:
        _ENVELOPE.reset(token)


def current() -> Envelope:
    """The dispatch that is bound here; in code mode, where none is, the environment's.

    Raises:
        EnvelopeError: there is neither.
    """
    envelope = _ENVELOPE.get()
    if envelope is not None:
        return envelope
    if os.environ.get("PIPELINES_RUN_TOKEN"):
        return Envelope.from_env()
    raise EnvelopeError(
        "no dispatch is bound here: call tools within `with set_current(envelope)`, and in "
        "threads of your own through bound() or run_async_in_thread()"
    )


@contextmanager
def actor(label: str) -> Iterator[str]:
    """Attribute calls and trace events within the block to a sub-agent; yields its call path.

    Nested labels join: `supervisor` around `refunds` gives `supervisor/refunds`.
    """
    outer = _ACTOR.get()
    path = _check_actor(label if outer is None else f"{outer}/{label}")
    token = _ACTOR.set(path)
    try:
        yield path
    finally:
        _ACTOR.reset(token)


def bound(function: Callable[..., T]) -> Callable[..., T]:
    """`function` with the dispatch, actor and everything else that is bound now, in any thread.

    Safe for concurrent calls: `executor.map(bound(look_up), orders)`.

    Raises:
        EnvelopeError: no dispatch is bound here that it could carry.
    """
    envelope = current()
    context = contextvars.copy_context()
    context.run(_ENVELOPE.set, envelope)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        # A context can be entered once at a time, so each call gets a copy.
        return context.copy().run(function, *args, **kwargs)

    return call


def run_async_in_thread(coro_factory: Callable[[], Awaitable[T]]) -> T:
    """The result of a coroutine, run on a thread of its own with what is bound here.

    For synchronous code under a running event loop, as in code mode, where `asyncio.run` is
    refused. The factory is called in that thread; what the coroutine raises is raised here.
    """
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    async def main() -> T:
        return await coro_factory()

    def target() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:  # carried over to the caller, whatever it is
            outcome.set_exception(error)

    threading.Thread(target=context.run, args=(target,), name="agent-kit", daemon=True).start()
    return outcome.result()


@dataclasses.dataclass(frozen=True)
class Effects:
    """Time and randomness, which tests replace."""

    sleep: Callable[[float], None] = time.sleep
    asleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.SystemRandom().uniform
    new_key: Callable[[], str] = secrets.token_hex


_EFFECTS = Effects()
_POOL = ThreadPoolExecutor(64, thread_name_prefix="proxy-call")
"""For aproxy_call; asyncio's own pool is as small as the machine and shared with everything."""


def proxy_call(
    name: str, args: Mapping[str, Any], *, envelope: Envelope | None = None,
    actor: str | None = None, timeout: float = 120.0, effects: Effects = _EFFECTS,
) -> Any:  # fmt: skip
    """Call a tool; its unwrapped `response`, decoded.

    A tool's own failure is a response like any other. Conditions of the platform that pass are
    retried, up to four attempts in all, under one Idempotency-Key, so that the tool runs once.

    Args:
        envelope: the dispatch to call for, instead of the one that is bound.
        actor: the call path to attribute it to, instead of the one that is bound.
        timeout: seconds that one attempt may take.

    Raises:
        ProxyError: refused, or not answered; see the proxy's error table.
        EnvelopeError: no dispatch is bound.
        TypeError: an argument has no JSON form.
    """
    call = _call_of(_tool_path(name), args, envelope, actor, timeout, effects, repeatable=True)
    return _unwrap(name, call.run())


async def aproxy_call(
    name: str, args: Mapping[str, Any], *, envelope: Envelope | None = None,
    actor: str | None = None, timeout: float = 120.0, effects: Effects = _EFFECTS,
) -> Any:  # fmt: skip
    """`proxy_call` for coroutines: waits in a thread, and a cancelled call is not retried."""
    call = _call_of(_tool_path(name), args, envelope, actor, timeout, effects, repeatable=True)
    return _unwrap(name, await call.arun())


def trace(
    type: str, payload: Mapping[str, Any], *, envelope: Envelope | None = None,
    actor: str | None = None, timeout: float = 30.0, effects: Effects = _EFFECTS,
) -> None:  # fmt: skip
    """Record a trace event (reasoning, plan, handoff, state, custom) among the tool calls.

    Raises:
        ProxyError, EnvelopeError, TypeError: as in `proxy_call`.
    """
    body = {"type": type, "payload": payload}
    _call_of("/trace", body, envelope, actor, timeout, effects, repeatable=False).run()


async def atrace(
    type: str, payload: Mapping[str, Any], *, envelope: Envelope | None = None,
    actor: str | None = None, timeout: float = 30.0, effects: Effects = _EFFECTS,
) -> None:  # fmt: skip
    """`trace` for coroutines."""
    body = {"type": type, "payload": payload}
    await _call_of("/trace", body, envelope, actor, timeout, effects, repeatable=False).arun()


def to_json(value: Any) -> bytes:
    """JSON as it is sent: models, dataclasses, enums, dates and sets become plain values.

    Raises:
        TypeError, ValueError: something in it has no JSON form.
    """
    return json.dumps(value, default=_plain, allow_nan=False).encode()


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What one attempt came to: a decoded body, or an error and whether to try again."""

    body: Any = None
    error: ProxyError | None = None
    again: bool = False
    retry_after_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call over all its attempts."""

    envelope: Envelope
    path: str
    body: bytes
    actor: str | None
    timeout: float
    effects: Effects
    key: str
    repeatable: bool
    """Whether the proxy knows repetitions by the key; if not, what may have arrived stays sent."""

    def run(self) -> Any:
        made = 1
        while (outcome := self._attempt()).error is not None:
            self.effects.sleep(self._pause(outcome, made))
            made += 1
        return outcome.body

    async def arun(self) -> Any:
        loop, made = asyncio.get_running_loop(), 1
        while (outcome := await loop.run_in_executor(_POOL, self._attempt)).error is not None:
            await self.effects.asleep(self._pause(outcome, made))
            made += 1
        return outcome.body

    def _pause(self, outcome: _Outcome, made: int) -> float:
        """Seconds until the next attempt; raises the error where there is none."""
        assert outcome.error is not None
        if not outcome.again or made >= ATTEMPTS or outcome.retry_after_s > MAX_RETRY_AFTER_S:
            raise outcome.error
        backoff = min(MAX_PAUSE_S, 0.5 * 2.0 ** (made - 1) + self.effects.uniform(0.0, 0.5))
        return max(backoff, outcome.retry_after_s)

    def _attempt(self) -> _Outcome:
        token = self.envelope.run_token
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Idempotency-Key": self.key,
            "Connection": "close",
        }
        if self.actor is not None:
            headers["X-Pipelines-Actor-Id"] = self.actor
        url = self.envelope.proxy_url.rstrip("/") + self.path
        deadline = _Deadline(self.timeout, self.effects.monotonic)
        try:
            status, retry_after, raw = _post(url, self.body, headers, deadline)
            return _outcome_of(status, retry_after, raw, token)
        except _Unanswered as failure:
            message = failure.message.replace(token, _HIDDEN)
            error = ProxyError(failure.code, None, message, failure.retryable)
            return _Outcome(
                None, error, failure.retryable and (self.repeatable or not failure.sent)
            )


def _call_of(
    path: str, payload: Mapping[str, Any], envelope: Envelope | None, actor: str | None,
    timeout: float, effects: Effects, *, repeatable: bool,
) -> _Call:  # fmt: skip
    try:
        body = to_json(dict(payload))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"what is sent to {path} has no JSON form: {error}") from None
    if len(body) > MAX_BODY_BYTES:
        problem = f"the body is larger than {MAX_BODY_BYTES} bytes; it was not sent"
        raise ProxyError("body_too_large", None, problem, False)
    path_of_actor = _ACTOR.get() if actor is None else _check_actor(actor)
    return _Call(
        envelope or current(), path, body, path_of_actor, timeout, effects, effects.new_key(),
        repeatable,
    )  # fmt: skip


def _tool_path(name: str) -> str:
    return f"/tools/{quote(name, safe='')}"


def _unwrap(name: str, body: Any) -> Any:
    if not isinstance(body, dict) or "response" not in body:
        problem = f"the answer to {name} is no envelope with a `response`; is this the proxy's URL?"
        raise ProxyError("response_invalid", 200, problem, False)
    return body["response"]


def _outcome_of(status: int, retry_after: str | None, raw: bytes, token: str) -> _Outcome:
    if 200 <= status < 300:
        try:
            return _Outcome(json.loads(raw))
        except (ValueError, RecursionError):
            problem = "the answer is not JSON; is this the proxy's URL?"
            return _Outcome(None, ProxyError("response_invalid", status, problem, False))
    text = raw.decode("utf-8", "replace").replace(token, _HIDDEN)
    try:
        error = json.loads(text)["error"]
        code, message = str(error["code"]), str(error["message"])
        again, details = error.get("retryable") is True, error.get("details")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        code, message, again, details = f"http_{status}", text.strip()[:300], False, None
    again = again or status == 429
    try:
        wait = max(0.0, float(retry_after or 0))
    except ValueError:
        wait = 0.0  # a date; the proxy says seconds
    return _Outcome(None, ProxyError(code, status, message, again, details), again, wait)


class _Unanswered(Exception):
    """There was no whole answer; `sent` where the proxy may have received the request."""

    def __init__(self, code: str, message: str, *, sent: bool, retryable: bool = True) -> None:
        super().__init__(code)
        self.code, self.message, self.sent, self.retryable = code, message, sent, retryable


class _Deadline:
    """When an attempt has taken too long."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds, self._monotonic = seconds, monotonic
        self._at = monotonic() + seconds

    def left(self) -> float:
        return max(0.001, self._at - self._monotonic())

    def passed(self) -> _Unanswered:
        """Not retried: it bounds how long the caller waits, and is not waited for four times."""
        problem = f"no whole answer within {self._seconds:g} s"
        return _Unanswered("timeout", problem, sent=True, retryable=False)


def _timed_out(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ == "timeout"  # Python 3.9's


def _post(
    url: str, body: bytes, headers: Mapping[str, str], deadline: _Deadline
) -> tuple[int, str | None, bytes]:
    """POST once, without proxies or redirects: status, Retry-After, body. Raises _Unanswered."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, parts.port, timeout=deadline.left())
    try:
        connection.connect()
    except (OSError, UnicodeError) as error:
        if _timed_out(error):
            raise deadline.passed() from None
        problem = f"cannot connect to {host}: {type(error).__name__}: {error}"
        # A bad certificate and a malformed name are ValueErrors as well, and stay what they are.
        may_pass = not isinstance(error, ValueError)
        raise _Unanswered("unreachable", problem, sent=False, retryable=may_pass) from None
    try:
        # Refused before all of the body was sent: the answer may be there to be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", parts.path, body, dict(headers))
        socket = connection.sock  # the response takes it over
        response = connection.getresponse()
        received, expected = bytearray(), response.length
        while expected is None or len(received) < expected:
            socket.settimeout(deadline.left())
            chunk = response.read1(65536)
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                problem = f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
                raise _Unanswered("response_too_large", problem, sent=True, retryable=False)
            if not chunk:
                break
        if expected is not None and len(received) < expected:
            raise http.client.IncompleteRead(b"", expected - len(received))
        return response.status, response.getheader("Retry-After"), bytes(received)
    except (OSError, http.client.HTTPException) as error:
        if _timed_out(error):
            raise deadline.passed() from None
        problem = f"the connection to {host} broke: {type(error).__name__}"
        raise _Unanswered("connection_broken", problem, sent=True) from None
    finally:
        connection.close()


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or not all("!" <= sign <= "~" for sign in url):
        raise EnvelopeError("the proxy URL must be an http or https URL")


def _check_actor(path: str) -> str:
    # What a header cannot carry is refused here; the rest of the rule is the proxy's to know.
    if not path.isascii() or not path.isprintable():
        raise ValueError(f"an actor's label is printable ASCII, not {path!r}")
    return path


def _present(value: Any, name: str) -> Any:
    if value is None or value == "":
        raise EnvelopeError(f"{name} is missing")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise EnvelopeError(f"{name} must be a string")
    return value


def _decimal(value: Any, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise EnvelopeError(f"{name} must be a decimal number")
    return value


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise EnvelopeError(f"{name} must be an object")
    return value


def _instruction(task: Mapping[str, Any], where: str) -> dict[str, Any]:
    instruction, name = task.get("user_instruction"), f"{where}user_instruction"
    return {
        "user_instruction": "" if instruction is None else _text(instruction, name),
        "task_input": _object(task.get("input"), f"{where}input"),
    }


def _session(value: Any) -> Session | None:
    if value is None:
        return None
    given = _object(value, "session")
    history = given.get("history", [])
    if not isinstance(history, list):
        raise EnvelopeError("session.history must be an array")
    return Session(
        id=_text(_present(given.get("id"), "session.id"), "session.id"),
        conversation=_decimal(given.get("conversation"), "session.conversation"),
        turn=_decimal(given.get("turn"), "session.turn"),
        history=tuple(_object(message, "session.history[]") for message in history),
    )
