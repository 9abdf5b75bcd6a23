"""A tool proxy over a log in memory: what is durable, what is lost, and what is read back late
are the test's to say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import orjson
import structlog
from pydantic import Field

from schemas.briefs import ToolBrief, ToolSpec
from schemas.codec import Codec
from schemas.faults import Failure, ResponseRule
from schemas.trajectory import (
    SESSION_ENDED,
    SESSION_STARTED,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TrajectoryEvent,
)
from schemas.world_setup import WorldSetup
from services.runtime.metrics import Metrics
from services.tool_proxy.answer import Call
from services.tool_proxy.live import LogUnavailable
from services.tool_proxy.passthrough import CallRealTool
from services.tool_proxy.proxy import AskModel, ProxyLimits, ToolProxy
from services.tool_proxy.recording import Reply
from services.tool_proxy.session import Posting, ProxyCore, SessionState
from services.tool_proxy.world import Context, ToolError, World
from tests.support.services import FixedClock

NOW_MS = 1_800_000_000_000
SECRET = "a secret of the tests, long enough"
CODEC = Codec()

STATE: dict[str, Any] = {
    "orders": {
        "1": {"id": "1", "status": "shipped", "note": "left with the neighbour", "total": 20},
        "2": {"id": "2", "status": "open", "items": ["pen", "ink", "paper", "glue"], "total": 5.5},
    },
    "notes": [],
}


def make_world() -> World:
    world = World("desk", initial_state=STATE)

    @world.tool
    def get_order(ctx: Context, order_id: str) -> dict[str, Any]:
        """Look up one order.

        More that nobody needs to know.
        """
        if order_id not in ctx.state["orders"]:
            raise ToolError("not_found", f"no order {order_id}", order_id=order_id)
        order: dict[str, Any] = ctx.state["orders"][order_id]
        return order

    @world.tool
    def add_note(
        ctx: Context,
        text: Annotated[str, Field(max_length=50)],
        kind: Literal["call", "mail"] = "call",
    ) -> dict[str, Any]:
        """Leave a note."""
        number = ctx.random.randrange(10**9)
        ctx.state["notes"].append({"text": text, "kind": kind, "number": number, "call": ctx.call})
        if text == "undo":
            raise ToolError("refused", "cannot note this")
        return {"number": number, "at": ctx.now.isoformat()}

    @world.tool(output_schema={"type": "number"})
    def answer(ctx: Context, value: Any) -> Any:
        """Answers what it is given."""
        return value

    @world.tool
    def crash(ctx: Context) -> dict[str, Any]:
        """Breaks after changing the state."""
        ctx.state["notes"] = None
        return {"never": 1 // 0}

    @world.tool
    def hang(ctx: Context, seconds: float) -> dict[str, Any]:
        """Takes its time."""
        import time

        time.sleep(seconds)
        return {}

    return world


WORLD = make_world()
"""For a proxy that runs as its own process and loads its worlds by name."""


def specs(world: World, *others: ToolSpec) -> tuple[ToolSpec, ...]:
    tools = (
        ToolSpec(name=t.name, input_schema=t.input_schema, output_schema=t.output_schema)
        for t in world.tools
    )
    return (*tools, *others)


def make_brief(
    *,
    failures: Sequence[Mapping[str, Any]] = (),
    rules: Sequence[Mapping[str, Any]] = (),
    tools: Sequence[ToolSpec] | None = None,
    world: str | None = "desk",
    answers: Literal["world", "schema", "model"] = "world",
    state: Mapping[str, Any] | None = None,
    seed: int = 7,
    **others: Any,
) -> ToolBrief:
    return ToolBrief(
        world=None if world is None else WorldSetup(name=world, answers=answers, state=state or {}),
        failures=tuple(Failure(**failure) for failure in failures),
        rules=tuple(ResponseRule(**rule) for rule in rules),
        tools=specs(make_world()) if tools is None else tuple(tools),
        seed=seed,
        **{"calls_per_minute": 10_000, **others},
    )


def started(brief: ToolBrief, session_id: str = "s1") -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{session_id}:start",
        session_id=session_id,
        run_id="run",
        kind=SESSION_STARTED,
        at_ms=NOW_MS,
        session_started=SessionStarted(
            scenario_id="case", category="happy", trial=0, seed=brief.seed, suite="suite",
            suite_hash="h", agent_id="agent", agent_fingerprint="f", task_id=1, user_brief="{}",
            tool_brief=brief.model_dump_json(), limits=Limits(),
        ),
    )  # fmt: skip


def ended(session_id: str = "s1") -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{session_id}:end", session_id=session_id, run_id="run", kind=SESSION_ENDED,
        at_ms=NOW_MS, session_ended=SessionEnded(reason="goal_met"),
    )  # fmt: skip


class MemoryLog:
    """The log and the session table over it: first write wins, finished sessions are dropped."""

    def __init__(self, core: ProxyCore) -> None:
        self.core = core
        self.records: list[bytes] = []
        self.table: dict[str, SessionState] = {}
        self.finished: set[str] = set()
        self.owned = True
        self.failing = ""
        """'lost': not durable; 'landed': durable, but nobody is told; '': works."""
        self.reads_back = True
        self._read = 0
        self._seen: set[str] = set()

    async def record(self, event: TrajectoryEvent) -> None:
        await asyncio.sleep(0)
        if self.failing != "lost":
            self.put(event)
        if self.failing:
            raise LogUnavailable("the broker does not answer")

    def put(self, *events: TrajectoryEvent) -> None:
        self.records += [CODEC.encode(event) for event in events]
        if self.reads_back:
            self.read_back()

    def read_back(self) -> None:
        for record in self.records[self._read :]:
            event = CODEC.decode(TrajectoryEvent, record)
            session_id = event.session_id
            self._read += 1
            if session_id in self.finished or event.event_id in self._seen:
                continue
            if event.kind == SESSION_STARTED:
                self.table[session_id] = self.core.start(event)
            elif session_id in self.table:
                try:
                    self.core.apply(self.table[session_id], event)
                except ValueError:
                    continue  # buried
                if self.core.finished(self.table[session_id]):
                    del self.table[session_id]
                    self.finished.add(session_id)
            self._seen.add(event.event_id)

    def rebuilt(self) -> MemoryLog:
        """What another replica makes of the same log."""
        other = MemoryLog(ProxyCore({"desk": make_world()}))
        other.records = list(self.records)
        other.read_back()
        return other

    def events(self) -> list[TrajectoryEvent]:
        """Every event once, as readers see them."""
        found: dict[str, TrajectoryEvent] = {}
        for record in self.records:
            event = CODEC.decode(TrajectoryEvent, record)
            found.setdefault(event.event_id, event)
        return list(found.values())

    def calls(self) -> list[ToolCalled]:
        return [event.tool_called for event in self.events() if event.tool_called is not None]

    # The `Sessions` protocol.

    def get(self, session_id: str) -> SessionState | None:
        return self.table.get(session_id) if self.owned else None

    async def wait_for(self, session_id: str, timeout_s: float) -> SessionState | None:
        for _ in range(20):
            if (state := self.get(session_id)) is not None:
                return state
            await asyncio.sleep(timeout_s / 20)
        return None

    def has_finished(self, session_id: str) -> bool:
        return session_id in self.finished

    def owns(self, session_id: str) -> bool:
        return self.owned


class Bench:
    """A proxy, its log, its clock, and calls made without HTTP."""

    def __init__(
        self,
        brief: ToolBrief | None = None,
        *,
        log: MemoryLog | None = None,
        real_tools: CallRealTool | None = None,
        ask_model: AskModel | None = None,
        **limits: Any,
    ) -> None:
        self.log = log or MemoryLog(ProxyCore({"desk": make_world()}))
        if brief is not None:
            self.log.put(started(brief))
        self.clock = FixedClock(NOW_MS)
        self.metrics = Metrics()
        self.slept: list[float] = []
        self.executor = ThreadPoolExecutor(2)
        self.proxy = ToolProxy(
            core=self.log.core,
            sessions=self.log,
            record=self.log.record,
            clock=self.clock,
            metrics=self.metrics,
            log=structlog.get_logger(),
            executor=self.executor,
            real_tools=real_tools,
            ask_model=ask_model,
            limits=ProxyLimits(**{"start_wait_s": 0.2, **limits}),
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        posting: int = 1,
        turn: int = 1,
        conversation: int = 1,
        key: str | None = None,
        actor: str | None = None,
        session_id: str = "s1",
    ) -> Reply:
        call = Call(
            tool=tool,
            raw=orjson.dumps(arguments or {}).decode(),
            arguments=dict(arguments or {}),
            posting=Posting(NOW_MS + posting, f"d{posting}"),
            turn=turn,
            conversation=conversation,
            actor=actor,
            idempotency_key=key,
        )
        return await self.proxy.call(session_id, call)

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


def answer_of(reply: Reply) -> dict[str, Any]:
    """The JSON body of a reply."""
    body: dict[str, Any] = orjson.loads(reply.body)
    return body
