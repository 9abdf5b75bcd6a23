"""A stand-in for a Rasa server: its REST channel and its tracker, with the habits of the real one.

Rasa itself cannot be installed here: no release since 1.10 supports this Python, and that one
needs another's wheels. What is imitated: a message is answered with an array, an empty one when the
assistant fails inside; the tracker of a conversation that is asked for before its first message
shows a session start which is not kept; a message's metadata is kept in the tracker, and that of
the first one in a slot besides; slots that the domain does not have are ignored; the HTTP API wants
its token as a query parameter, the channel does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

Reply = list[dict[str, Any]]
Understand = Callable[[str, "Tracker", Mapping[str, Any]], Reply]


class Tracker:
    """One conversation's events and slots."""

    def __init__(self, slots: tuple[str, ...]) -> None:
        self.events: list[dict[str, Any]] = []
        self.slots: dict[str, Any] = dict.fromkeys(slots)
        self._time = itertools.count(1)

    def add(self, event: str, **fields: Any) -> None:
        entry = {"event": event, "timestamp": float(next(self._time)), **fields}
        if event == "slot":
            if fields["name"] not in self.slots:
                return
            self.slots[fields["name"]] = fields["value"]
        self.events.append(entry)

    def says(self, text: str | None, utter: str = "", **data: Any) -> dict[str, Any]:
        """A bot message, as the tracker keeps it and as the channel sends it."""
        metadata = {"utter_action": utter} if utter else {}
        self.add("bot", text=text, data={"buttons": None, **data}, metadata=metadata)
        return {k: v for k, v in {"text": text, **data}.items() if v is not None}

    def start_session(self, metadata: Mapping[str, Any]) -> None:
        self.add("action", name="action_session_start")
        self.add("session_started")
        self.add("slot", name="session_started_metadata", value=dict(metadata))
        self.add("action", name="action_listen")


class Rasa:
    """The server. `understand` is the assistant: what it adds to the tracker, and says."""

    def __init__(
        self, understand: Understand, *, slots: tuple[str, ...] = (), token: str = ""
    ) -> None:
        self._understand = understand
        self._slots = (*slots, "session_started_metadata")
        self._token = token
        self.trackers: dict[str, Tracker] = {}
        self.messages: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.tracker_answer: Response | None = None
        self.app = Starlette(
            routes=[
                Route("/", lambda _: PlainTextResponse("Hello from Rasa: 3.6.20")),
                Route("/status", self._status),
                Route("/webhooks/rest/", lambda _: JSONResponse({"status": "ok"})),
                Route("/webhooks/rest/webhook", self._webhook, methods=["POST"]),
                Route("/conversations/{sender}/tracker", self._get),
                Route("/conversations/{sender}/tracker/events", self._append, methods=["POST"]),
            ]
        )

    async def _webhook(self, request: Request) -> Response:
        message = await request.json()
        self.requests.append("webhook")
        self.messages.append(message)
        tracker = self.trackers.setdefault(message["sender"], Tracker(self._slots))
        text, metadata = message["message"].strip(), message.get("metadata") or {}
        if not tracker.events and text != "/session_start":
            tracker.start_session(metadata)
        tracker.add(
            "user", text=text, metadata=metadata, input_channel="rest",
            parse_data={"intent": {"name": "x"}},
        )  # fmt: skip
        if text == "/session_start":
            tracker.start_session(metadata)
            return JSONResponse([])
        try:
            replies = self._understand(text, tracker, metadata)
        except Exception:
            replies = []
        tracker.add("action", name="action_listen")
        return JSONResponse(replies)

    async def _get(self, request: Request) -> Response:
        self.requests.append("tracker")
        if (refused := self._refused(request)) is not None:
            return refused
        if self.tracker_answer is not None:
            return self.tracker_answer
        sender = request.path_params["sender"]
        tracker = self.trackers.get(sender)
        if tracker is None:
            tracker = Tracker(self._slots)
            tracker.start_session({})
        shown = tracker.events if request.query_params.get("include_events") == "ALL" else None
        return JSONResponse({"sender_id": sender, "slots": tracker.slots, "events": shown})

    async def _append(self, request: Request) -> Response:
        self.requests.append("slots")
        if (refused := self._refused(request)) is not None:
            return refused
        tracker = self.trackers.setdefault(request.path_params["sender"], Tracker(self._slots))
        for event in await request.json():
            tracker.add(**event)
        return JSONResponse({"slots": tracker.slots, "events": tracker.events})

    async def _status(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse({"num_active_training_jobs": 0})

    def _refused(self, request: Request) -> Response | None:
        if self._token and request.query_params.get("token") != self._token:
            return JSONResponse({"reason": "NotAuthenticated"}, 401)
        return None
