"""A small run: its scores, its trajectories and its status, for the pipelines' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pipelines.score_run import Parts
from schemas.codec import Codec
from schemas.runs import OffsetRange, RunRequest, RunState, RunStatus
from schemas.scores import DimensionScore, SessionScored
from schemas.topics import SCORES, TRAJECTORIES
from schemas.trajectory import (
    AgentTurn,
    Injection,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TrajectoryEvent,
    Usage,
    UserTurn,
)
from services.runtime.bus.records import Incoming, Outgoing
from services.runtime.service import Publication, outgoing_record
from services.runtime.store import Result, StoreRejected, StoreUnavailable

RUN = "run-1"
AT_MS = 1_700_000_000_000


def session_id(scenario_id: str, trial: int) -> str:
    return f"{RUN}/{scenario_id}/{trial}"


def score(
    scenario_id: str,
    trial: int,
    *dimensions: DimensionScore,
    passed: bool | None = True,
    valid: bool = True,
    category: str = "happy",
) -> SessionScored:
    return SessionScored(
        run_id=RUN,
        session_id=session_id(scenario_id, trial),
        scenario_id=scenario_id,
        category=category,
        trial=trial,
        end_reason="goal_met",
        valid=valid,
        invalid_reason="" if valid else "the simulator looped",
        passed=passed,
        dimensions=dimensions,
        judge="rules/1",
        at_ms=AT_MS,
    )


def gate(name: str, passed: bool | None) -> DimensionScore:
    return DimensionScore(
        dimension=name,
        status="unscored" if passed is None else "scored",
        value=None if passed is None else float(passed),
        passed=passed,
        reason="because",
        citations=("a1",),
        evaluator="rules/1",
    )


def measure(name: str, value: float) -> DimensionScore:
    return DimensionScore(dimension=name, kind="measure", value=value)


def status(plan: dict[str, int], *ranges: OffsetRange, category: str = "happy") -> RunStatus:
    return RunStatus(
        run_id=RUN,
        state=RunState.SESSIONS_DONE,
        request=RunRequest(
            run_id=RUN, suite="orders", agent_id="shop-2", trials=max(plan.values()), seed=7
        ),
        suite="orders",
        suite_hash="h",
        suite_version="3",
        agent_name="shop",
        agent_fingerprint="f",
        pins={"judge": "rules/1"},
        planned=sum(plan.values()),
        ended=sum(plan.values()),
        scenario_plan=plan,
        scenario_categories=dict.fromkeys(plan, category),
        ranges=ranges,
        requested_at_ms=AT_MS - 5_000,
        at_ms=AT_MS,
    )


def events(scenario_id: str, trial: int) -> list[TrajectoryEvent]:
    """Six events of one session: start, user, a tool call with an injected failure, agent, end."""
    session = session_id(scenario_id, trial)

    def event(step: str, kind: str, turn: int, at: int) -> TrajectoryEvent:
        return TrajectoryEvent(
            event_id=f"{session}:{step}",
            session_id=session,
            run_id=RUN,
            kind=kind,
            turn=turn,
            at_ms=AT_MS + at,
        )

    return [
        replace(
            event("start", "session_started", 0, 0),
            session_started=SessionStarted(
                scenario_id=scenario_id,
                category="happy",
                trial=trial,
                seed=5,
                suite="orders",
                suite_hash="h",
                agent_id="shop-2",
                agent_fingerprint="f",
                task_id=1,
                user_brief='{"persona": {"name": "hurried"}, "seed": 5}',
                tool_brief="{}",
                limits=Limits(),
            ),
        ),
        replace(
            event("u1", "user_turn", 1, 10),
            user_turn=UserTurn(text="cancel my order", latency_ms=2),
        ),
        replace(
            event("t1", "tool_called", 1, 20),
            tool_called=ToolCalled(
                call=1,
                tool="find_order",
                arguments='{"id": 4}',
                response="busy",
                response_is_text=True,
                source="injected",
                injection=Injection(rule_id="r1", kind="outage", occurrence=1),
                latency_ms=3,
            ),
        ),
        replace(
            event("a1", "agent_turn", 1, 30),
            agent_turn=AgentTurn(
                outcome="ok",
                final_response="done",
                latency_ms=40,
                usage=Usage(input_tokens=11, output_tokens=7, cost_usd=0.25),
            ),
        ),
        replace(
            event("end", "session_ended", 1, 50),
            session_ended=SessionEnded(
                reason="goal_met", turns=1, tool_calls=1, injected={"r1": 1}
            ),
        ),
    ]


def outgoing(codec: Codec, record: TrajectoryEvent | SessionScored) -> Outgoing:
    topic = SCORES if isinstance(record, SessionScored) else TRAJECTORIES
    return outgoing_record(codec, Publication(topic, record.session_id, record))


class Log:
    """One partition of each topic, in memory; `read` has the bus's contract for a range."""

    def __init__(self) -> None:
        self.records: dict[str, list[Incoming]] = {}

    def append(self, record: Outgoing) -> int:
        log = self.records.setdefault(record.topic, [])
        log.append(
            Incoming(
                topic=record.topic,
                partition=0,
                offset=len(log),
                key=record.key,
                value=record.value,
                headers=dict(record.headers),
                timestamp_ms=AT_MS,
            )
        )
        return len(log) - 1

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Incoming]:
        assert partition == 0
        yield from self.records[topic][start:end]

    def ranges(self) -> Sequence[OffsetRange]:
        return [
            OffsetRange(topic=topic, partition=0, start=0, end=len(log))
            for topic, log in self.records.items()
        ]


class MemoryStore:
    """Rows by table, as they were inserted. `down` and `refuse` are what a test sets."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {}
        self.inserts = 0
        self.down = False
        self.refuse: Callable[[str, dict[str, object]], bool] = lambda table, row: False

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.inserts += 1
        if self.down:
            raise StoreUnavailable("no answer")
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        if any(self.refuse(table, row) for row in named):
            raise StoreRejected(f"{table}: refused")
        self.rows.setdefault(table, []).extend(named)

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> Result:
        raise NotImplementedError

    def command(self, sql: str) -> None:
        raise NotImplementedError

    def ping(self) -> None:
        """Always there."""

    def close(self) -> None:
        """Nothing to close."""


#: Beam pickles what it runs; these are found again by name, in the one process of these tests.
LOGS: dict[str, Log] = {}
STORES: dict[str, MemoryStore] = {}


def read_from(name: str, topic: str, partition: int, start: int, end: int) -> Iterator[Incoming]:
    return LOGS[name].read(topic, partition, start, end)


def append_to(name: str, records: Sequence[Outgoing]) -> None:
    for record in records:
        LOGS[name].append(record)


def store_named(name: str) -> MemoryStore:
    return STORES[name]


def parts_on(name: str, *, piece: int = 100_000, batch_rows: int = 5_000) -> Parts:
    """Parts over a new log and a new store of this name."""
    LOGS[name], STORES[name] = Log(), MemoryStore()
    return Parts(
        read=partial(read_from, name),
        make_codec=Codec,
        append=partial(append_to, name),
        make_store=partial(store_named, name),
        piece=piece,
        batch_rows=batch_rows,
    )
