"""Conducts runs: accepts requests, admits sessions, reports progress, completes.

One replica conducts a run: the one that owns its request's partition, which by co-partitioning is
where the notices about its sessions arrive. What it has done is found again in the log: the
accepted status carries where the run's records begin and which suite it was accepted with.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial

from schemas.errors import WindtunnelSchemaError
from schemas.loader import scenario_of
from schemas.registry import AgentRegistration, Suite
from schemas.runs import OffsetRange, RunRequest, RunStatus
from schemas.runs import RunState as States
from schemas.topics import RUN_STATUS, SCORES, TRAJECTORIES
from services.dispatcher.agents.kind import AgentKind
from services.dispatcher.expansion import (
    RequestRefused,
    check_request,
    make_plan,
    objectives,
    started_event,
)
from services.dispatcher.run_core import QUEUES, Accept, Admit, Complete, RunCore, RunState
from services.dispatcher.settings import DispatcherSettings
from services.runtime import metrics as m
from services.runtime.agents.client import AgentFailed
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.agents.secrets import SecretMissing
from services.runtime.bus.admin import end_offsets
from services.runtime.bus.records import Incoming
from services.runtime.lookup import Lookup, SuiteLookup
from services.runtime.service import Publication, Service
from services.runtime.state_table import StateTable

_LOOK_UP_S = 0.5
"""So often who waits for the next session to arrive looks whether the run is overdue."""
_FINAL = frozenset({States.SESSIONS_DONE, States.AGGREGATED, States.REJECTED, States.FAILED})


class Coordinator:
    """The effects of the run core."""

    def __init__(
        self,
        service: Service[DispatcherSettings],
        kinds: AgentKind,
        suites: SuiteLookup,
        agents: Lookup[AgentRegistration],
        statuses: Lookup[RunStatus],
        pins: Mapping[str, str],
    ) -> None:
        self._service = service
        self._kinds = kinds
        self._suites = suites
        self._agents = agents
        self._statuses = statuses
        self._pins = dict(pins)
        # Progress must not be said after completion, whoever of the two is quicker.
        self._saying = asyncio.Lock()
        self.core = RunCore(service.codec)
        self._table: StateTable[RunRequest, RunState] | None = None

    def attach(self, table: StateTable[RunRequest, RunState]) -> None:
        self._table = table
        metrics = self._service.metrics
        metrics.measure(m.RUNS_ACTIVE, lambda: float(sum(1 for _ in table.states())))
        for what in QUEUES:
            metrics.measure(m.ADMISSION_QUEUE, partial(self._queued, table, what), waiting_for=what)

    async def act(self, state: RunState, action: Hashable) -> None:
        if isinstance(action, Accept):
            await self._accept(state)
        elif isinstance(action, Admit):
            await self._admit(state, action)
        elif isinstance(action, Complete):
            await self._complete(state)
        else:
            raise TypeError(f"unknown action {action!r}")

    def _queued(self, table: StateTable[RunRequest, RunState], what: str) -> float:
        now_ms = self._service.clock.now_ms()
        return float(sum(state.queued(now_ms)[what] for _, state in table.states()))

    async def refused(self, incoming: Incoming, reason: str) -> None:
        """An unreadable run request: its author looks at the status topic, so say it there."""
        run_id = incoming.key or f"unreadable-{incoming.partition}-{incoming.offset}"
        if self._statuses.get(run_id) is None:
            await self._say(
                RunStatus(
                    run_id=run_id,
                    state=States.REJECTED,
                    errors=(
                        f"the run request could not be read: {reason}. It must be a "
                        f"windtunnel.RunRequest in Avro single-object encoding with the run id as "
                        f"the record's key; schemas/avro/RunRequest.avsc is its schema",
                    ),
                    reporter=self._service.settings.service,
                    at_ms=self._service.clock.now_ms(),
                )
            )

    async def report(self) -> None:
        """Runs for ever: says how far the runs are, and ends those that are overdue."""
        assert self._table is not None
        while True:
            await asyncio.sleep(self._service.settings.status_interval_s)
            for run_id, state in list(self._table.states()):
                if state.plan is None or state.completed:
                    continue
                deadline_ms = state.accepted_at_ms + state.request.deadline_s * 1000
                if self._service.clock.now_ms() > deadline_ms and not state.overdue:
                    state.overdue = True
                    self._table.pursue(run_id)
                elif state.dirty:
                    state.dirty = False
                    async with self._saying:
                        if not state.completed:
                            await self._say(self._status(state, States.RUNNING))

    async def _accept(self, state: RunState) -> None:
        request = state.request
        earlier = self._statuses.get(request.run_id)
        if earlier is not None and earlier.state in _FINAL:
            state.completed = True
            return
        try:
            check_request(request)
            suite, agent = await self._look_up(request, earlier)
            plan = make_plan(
                request,
                [scenario_of(entry) for entry in suite.scenarios],
                can_improvise=bool(self._service.settings.user_model),
            )
            if earlier is None:
                await self._check(agent)
        except RequestRefused as error:
            await self._reject(state, error.errors)
            return
        except (SecretMissing, WindtunnelSchemaError) as error:
            await self._reject(state, [str(error)])
            return
        state.suite, state.agent = suite, agent
        if earlier is not None:
            state.begin = earlier.ranges
            state.accepted_at_ms = earlier.requested_at_ms
            state.began_ms = dict(earlier.arrivals_began_ms)
        else:
            state.begin = await self._ends()
            state.accepted_at_ms = self._service.clock.now_ms()
        state.accept(plan)
        if earlier is None:
            # Durable before the first session starts: a successor needs to know the beginning.
            await self._say(self._status(state, States.ACCEPTED))

    async def _look_up(
        self, request: RunRequest, earlier: RunStatus | None
    ) -> tuple[Suite, AgentRegistration]:
        wanted = earlier.suite_hash if earlier is not None else request.suite
        # What was published before the request is known before it is judged.
        for table in (self._suites, self._agents):
            await table.catch_up(self._service.settings.lookup_s)
        suite, agent = self._suites.find(wanted), self._agents.get(request.agent_id)
        if suite is not None and agent is not None:
            return suite, agent
        errors = []
        if suite is None:
            errors.append(
                f"suite {wanted!r} is not published; publish it with "
                f"`windtunnel scenarios publish DIR`, or check the name"
            )
        if agent is None:
            errors.append(
                f"agent {request.agent_id!r} is not registered; register it with "
                f"`windtunnel agents register`, or see `windtunnel agents list`"
            )
        raise RequestRefused(errors)

    async def _check(self, agent: AgentRegistration) -> None:
        try:
            await self._kinds.check(agent, self._service.settings.ping_timeout_s)
        except (AgentFailed, LookupError) as error:
            raise RequestRefused([f"agent {agent.agent_id!r}: {error}"]) from None

    async def _admit(self, state: RunState, action: Admit) -> None:
        if action.phase != state.phase:
            state.phase, state.admitted = action.phase, 0
        assert state.plan is not None
        assert state.suite is not None
        assert state.agent is not None
        await self._start_clock(state)
        while (room := state.room()) > 0 and not state.overdue:
            now_ms = self._service.clock.now_ms()
            if (next_ms := state.due_ms()) is not None and next_ms > now_ms:
                await asyncio.sleep(min((next_ms - now_ms) / 1000, _LOOK_UP_S))
                continue
            room = min(room, state.due(now_ms), self._service.settings.admission_batch)
            chosen = state.current()[state.admitted : state.admitted + room]
            fresh = [
                (one, state.due_ms(place))
                for place, one in enumerate(chosen)
                if one.session_id not in state.ended
            ]
            await self._service.publish(
                *(
                    Publication(
                        TRAJECTORIES,
                        planned.session_id,
                        started_event(
                            state.request, state.plan, planned, state.suite, state.agent, now_ms,
                            due_ms,
                        ),
                    )
                    for planned, due_ms in fresh
                )
            )  # fmt: skip
            for planned, _ in fresh:
                category = str(state.plan.scenarios[planned.scenario_id].category)
                self._service.metrics.add(m.SESSIONS_STARTED, category=category)
                if planned.attempt:
                    self._service.metrics.add(m.RETRIES, what="session")
            state.admitted += len(chosen)
            state.started += len(chosen)
            state.dirty = True

    async def _start_clock(self, state: RunState) -> None:
        """Start the clock by which an open-loop phase's sessions arrive, once for all replicas."""
        phase = state.phases[state.phase]
        if not phase.arrivals or phase.name in state.began_ms:
            return
        began_ms = {**state.began_ms, phase.name: self._service.clock.now_ms()}
        # Durable before the first arrival: a successor goes by the same clock.
        async with self._saying:
            status = self._status(state, States.RUNNING)
            await self._say(replace(status, arrivals_began_ms=began_ms))
        state.began_ms = began_ms

    async def _complete(self, state: RunState) -> None:
        ends = {(one.topic, one.partition): one.end for one in await self._ends()}
        ranges = tuple(
            replace(one, end=ends.get((one.topic, one.partition), one.start)) for one in state.begin
        )
        status = self._status(state, States.SESSIONS_DONE)
        errors: tuple[str, ...] = ()
        if status.lost:
            errors = (f"{status.lost} of {status.planned} sessions had not ended at the deadline",)
        async with self._saying:
            await self._say(replace(status, ranges=ranges, errors=errors))
            state.completed = True

    async def _reject(self, state: RunState, errors: list[str] | tuple[str, ...]) -> None:
        self._service.log.warning("run rejected", run_id=state.request.run_id, errors=list(errors))
        now_ms = self._service.clock.now_ms()
        await self._say(
            RunStatus(
                run_id=state.request.run_id,
                state=States.REJECTED,
                errors=tuple(errors),
                request=state.request,
                suite=state.request.suite,
                reporter=self._service.settings.service,
                requested_at_ms=now_ms,
                at_ms=now_ms,
            )
        )
        state.completed = True

    def _status(self, state: RunState, what: str) -> RunStatus:
        assert state.plan is not None
        assert state.suite is not None
        assert state.agent is not None
        planned = state.plan.size
        # Of a trial that is played again, the last session stands for it.
        ended = {name: why for name, why in state.ended.items() if name not in state.superseded}
        return RunStatus(
            run_id=state.request.run_id,
            state=what,
            request=state.request,
            suite=state.suite.name,
            suite_hash=state.suite.suite_hash,
            suite_version=state.suite.version,
            agent_name=state.agent.name,
            agent_fingerprint=fingerprint(state.agent),
            pins=self._pins,
            planned=planned,
            started=max(state.started - len(state.superseded), len(ended)),
            ended=len(ended),
            scored=len(state.scored - state.superseded),
            lost=planned - len(ended) if state.overdue else 0,
            retried=len(state.superseded),
            reasons=dict(sorted(Counter(ended.values()).items())),
            categories=dict(sorted(state.ended_categories.items())),
            scenario_plan=state.plan.per_scenario(),
            scenario_categories=state.plan.categories,
            objectives=tuple(objectives(state.plan)),
            arrivals_began_ms=state.began_ms,
            ranges=state.begin,
            reporter=self._service.settings.service,
            requested_at_ms=state.accepted_at_ms,
            at_ms=self._service.clock.now_ms(),
        )

    async def _ends(self) -> tuple[OffsetRange, ...]:
        """The ends of the session topics now, as empty ranges."""
        found = []
        for topic in (TRAJECTORIES, SCORES):
            ends = await asyncio.to_thread(end_offsets, self._service.bus, topic.full_name)
            found += [
                OffsetRange(topic=topic.full_name, partition=number, start=offset, end=offset)
                for number, offset in sorted(ends.items())
            ]
        return tuple(found)

    async def _say(self, status: RunStatus) -> None:
        await self._service.publish(Publication(RUN_STATUS, status.run_id, status))
