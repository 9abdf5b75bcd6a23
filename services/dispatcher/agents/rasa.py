"""Rasa assistants, driven over their REST channel and read through their tracker (S02, S07)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import quote

import orjson

from schemas.agent_response import ParsedResponse, ResponseRefused, parse_response
from schemas.registry import AgentRegistration, RasaSettings
from schemas.traces import EVENTS_LEFT_OUT
from services.dispatcher.agents import rasa_tracker
from services.dispatcher.agents.proxy_calls import ProxyCalls
from services.runtime.agents.client import TurnRequest, turn_timeout_s
from services.runtime.agents.connection import check_connection, with_token
from services.runtime.agents.decoding import NotJson, decode
from services.runtime.agents.exchange import AgentFailed, Exchanger, below
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import auth_headers, resolve

SESSION_START = "/session_start"
_BATCH = 50
_MAX_TRACKER_BYTES = 16 * 1024 * 1024


class RasaAgent:
    """The agent kind `rasa`."""

    def __init__(self, exchanger: Exchanger, proxy: ProxyCalls) -> None:
        self._exchanger = exchanger
        self._proxy = proxy

    async def close(self) -> None:
        """Nothing is held."""

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        await check_connection(agent, timeout_s, self._exchanger)

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        timeout_s = turn_timeout_s(agent)
        try:
            async with asyncio.timeout(timeout_s):
                return await _Turn(self._exchanger, self._proxy, agent, request).run()
        except TimeoutError:
            raise AgentFailed("timeout", "timeout", f"no answer within {timeout_s:g} s") from None


def sender_of(request: TurnRequest) -> str:
    """Whom Rasa talks to: the same for every turn of a conversation, and every posting of it."""
    session = request.body["session"]
    return f"{session['id']}-{session['conversation']}"


class _Turn:
    """One turn with an assistant."""

    def __init__(
        self,
        exchanger: Exchanger,
        proxy: ProxyCalls,
        agent: AgentRegistration,
        request: TurnRequest,
    ) -> None:
        self._exchanger, self._proxy = exchanger, proxy
        self._agent, self._request = agent, request
        self._settings = agent.rasa or RasaSettings()
        self._timeout_s = turn_timeout_s(agent)
        self._auth = auth_headers(agent)
        reference = self._settings.token_ref
        self._token = resolve(reference, f"agent {agent.agent_id}") if reference else None
        self._redactor = Redactor(
            [request.run_token, *self._auth.values(), *([self._token] if self._token else [])]
        )
        self._sender = sender_of(request)
        self._text = request.body["input"]["user_instruction"]
        self._warnings: list[str] = []

    async def run(self) -> ParsedResponse:
        slots = self._request.body["input"]["input"]
        history = self._request.body["session"]["history"]
        before: Sequence[Any] = ()
        if self._settings.tracker:
            before = await self._tracker()
        replies = self._heard(before, earlier=len(history) // 2)
        # Asked for a conversation that it does not know, Rasa shows a session start that it does
        # not keep, and makes it again when the first message comes.
        start = len(before) if rasa_tracker.said_by_user(before) else 0
        if replies is None:
            if slots and not history:
                await self._start_with(slots)
            replies = await self._send(self._text)
        else:
            # Posted by somebody who did not live to record the answer.
            start = rasa_tracker.said_by_user(before)[-1][0]
        if self._settings.tracker:
            await self._report((await self._tracker())[start:])
        return self._answered(replies)

    def _heard(self, events: Sequence[Any], earlier: int) -> list[dict[str, Any]] | None:
        """What was answered to this very message already; None if it was not heard yet."""
        said = rasa_tracker.said_by_user(events)
        if len(said) <= earlier or said[-1][1] != self._text.strip():
            return None
        return rasa_tracker.said_by_bot(events[said[-1][0] :])

    async def _start_with(self, slots: Mapping[str, Any]) -> None:
        """Run the assistant's own session start on an empty tracker, then set the slots (S02)."""
        await self._send(SESSION_START)
        events = [{"event": "slot", "name": name, "value": slots[name]} for name in slots]
        path = f"conversations/{quote(self._sender, safe='')}/tracker/events"
        value = await self._ask("POST", path, "rasa_slots_refused", events, token=True)
        known = value.get("slots") if isinstance(value, dict) else None
        unknown = [name for name in slots if isinstance(known, dict) and name not in known]
        if unknown:
            raise LookupError(f"the assistant's domain has no slot {', '.join(unknown)[:200]}")

    async def _send(self, text: str) -> list[dict[str, Any]]:
        """Say something as the user; the assistant's replies.

        Custom actions find in the message's metadata what an HTTP agent finds in its request.
        """
        request = self._request
        message = {
            "sender": self._sender,
            "message": text,
            "metadata": {
                "task_id": request.task_id,
                "run_id": request.run_id,
                "odyssey_proxy_url": request.proxy_url,
                "run_token": request.run_token,
                "run_token_jti": request.jti,
                **request.trace_headers,
            },
        }
        path = f"webhooks/{self._settings.channel}/webhook"
        value = await self._ask("POST", path, "http_status", message)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise AgentFailed("error", "rasa_reply_malformed", "expected an array of objects")
        if len(value) > rasa_tracker.MAX_REPLIES:
            raise AgentFailed(
                "error",
                "rasa_reply_malformed",
                f"{len(value)} replies, at most {rasa_tracker.MAX_REPLIES} are taken",
            )
        return value

    async def _tracker(self) -> Sequence[Any]:
        """All events of the conversation, oldest first."""
        path = f"conversations/{quote(self._sender, safe='')}/tracker?include_events=ALL"
        value = await self._ask("GET", path, "rasa_tracker_unreadable", token=True)
        events = value.get("events") if isinstance(value, dict) else None
        if events is not None and not isinstance(events, list):
            raise AgentFailed("error", "rasa_tracker_unreadable", "events is no array")
        return events or []

    async def _ask(
        self, method: str, path: str, code: str, content: Any = None, *, token: bool = False
    ) -> Any:
        path, _, query = path.partition("?")
        url = below(self._agent.endpoint, path)
        if query:
            url = f"{url}{'&' if '?' in url else '?'}{query}"
        headers = {
            "Content-Type": "application/json", **self._request.trace_headers, **self._auth
        }  # fmt: skip
        answer = await self._exchanger.exchange(
            method,
            with_token(url, self._token if token else None),
            headers=headers,
            body=None if content is None else orjson.dumps(content),
            timeout_s=self._timeout_s,
            max_bytes=_MAX_TRACKER_BYTES,
        )
        quoted = self._redactor.quote(answer.body)
        if not answer.ok:
            raise AgentFailed("error", code, f"/{path} was answered {answer.status}: {quoted}")
        try:
            return (await asyncio.to_thread(decode, answer.body)).value
        except NotJson as error:
            detail = f"{error}; the answer of /{path} begins: {quoted}"
            raise AgentFailed("error", "response_not_json", detail) from None

    async def _report(self, events: Sequence[Any]) -> None:
        """Put what the assistant's runtime did into the trajectory."""
        traces, left_out = rasa_tracker.trace_events(events)
        if left_out:
            self._warnings.append(f"{left_out} {EVENTS_LEFT_OUT} too many or too large to keep")
        rest = iter([self._redactor.value(trace) for trace in traces])
        while batch := list(islice(rest, _BATCH)):
            refused = await self._proxy.trace(self._request, batch)
            if refused is not None:
                self._warnings.append(f"{EVENTS_LEFT_OUT} refused with {refused}")
                return

    def _answered(self, replies: Sequence[Mapping[str, Any]]) -> ParsedResponse:
        texts = [text for text in map(rasa_tracker.rendered, replies) if text]
        if not texts:
            # The channel answers so when the assistant fails inside, and nothing tells it from
            # an assistant that has nothing to say.
            raise AgentFailed("error", "rasa_empty_reply", "the channel replied with nothing")
        messages = [{"role": "user", "content": self._text}]
        messages += [{"role": "assistant", "content": text} for text in texts]
        try:
            parsed = parse_response(
                {
                    "final_response": "\n".join(texts),
                    "messages": messages,
                    "metadata": {"sender_id": self._sender},
                },
                require_rich_transcript=self._agent.require_rich_transcript,
            )
        except ResponseRefused as error:
            raise AgentFailed("error", error.code, str(error)) from None
        return replace(parsed, soft_warnings=(*self._warnings, *parsed.soft_warnings))
