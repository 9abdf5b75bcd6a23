"""Rules that need sessions: run on a stack, under names that nobody else uses.

Two questions are asked. Who passes without doing anything: one run against an agent that refuses
every turn. And which expectations decide nothing: a run against an agent that passes, then one for
each further expectation of a scenario, which is turned into its opposite. Scenarios keep their ids
and the runs their seed, so that a deterministic agent has the same conversations each time, and the
mutated expectation is all that differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from schemas.loader import canonical_json
from schemas.registry import Suite, SuiteScenario
from schemas.runs import RunRequest
from schemas.scenario import Category, Scenario
from schemas.scores import RunAggregates, ScenarioAggregate
from schemas.topics import AGGREGATES, SUITES
from services.cli.commands.run import run_to_verdict
from services.cli.connection import Connection
from services.cli.errors import CliError
from services.cli.following import REJECTED
from services.cli.lint.idle_agent import IdleAgent
from services.cli.lint.linting import about
from services.cli.lint.model import Finding, Found, LintedSuite
from services.cli.lint.mutation import Mutant, mutants
from services.cli.output import say
from services.cli.publishing import publish_suite, register_agents, remove_agent
from services.cli.records import Latest, append
from services.runtime.bus.records import Outgoing
from services.runtime.ids import Ids, RandomIds

_DEADLINE_S = 600
_CONCURRENCY = 8


class LintRuns:
    """Runs of scenarios that belong to no published suite."""

    def __init__(self, connection: Connection, suite: str, ids: Ids | None = None) -> None:
        """`suite`: the name of the suite that is linted."""
        self._connection, self._suite = connection, suite
        self._mark = f"lint-{(ids or RandomIds()).new()[:8]}"

    async def play(
        self, name: str, scenarios: Sequence[Scenario], agent_id: str
    ) -> Mapping[str, ScenarioAggregate]:
        """One session of each scenario; what came of them, by scenario id.

        Raises:
            CliError: the run was refused, or did not come to an end.
            BusError: the broker cannot be reached.
        """
        async with self._published(scenarios) as suite:
            request = RunRequest(
                run_id=f"{self._mark}-{name}",
                suite=suite.suite_hash,
                agent_id=agent_id,
                concurrency=_CONCURRENCY,
                baseline="none",
                requested_by="windtunnel scenarios lint",
                deadline_s=_DEADLINE_S,
            )
            status, verdict = await run_to_verdict(self._connection, request)
        if verdict is None or (status is not None and status.state in REJECTED):
            errors = "; ".join(status.errors) if status else "no service answered"
            raise CliError(f"run {request.run_id} came to nothing: {errors or 'no verdict'}")
        # The gate decides on the figures, so they are there before its verdict is; the status,
        # which is on a topic of its own, may be seen later.
        table = await Latest(self._connection, AGGREGATES, RunAggregates).read()
        figures = table.get(request.run_id)
        if figures is None:
            reasons = "; ".join(reason.message for reason in verdict.reasons)
            raise CliError(f"run {request.run_id} has no figures: {reasons}")
        return {scenario.scenario_id: scenario for scenario in figures.scenarios}

    @asynccontextmanager
    async def idle_agent(self) -> AsyncIterator[str]:
        """The id of a registered agent that does nothing, until the block ends."""
        agent_id = f"{self._mark}-idle"
        async with IdleAgent() as agent:
            await register_agents(self._connection, [agent.registration(agent_id)])
            try:
                yield agent_id
            finally:
                await remove_agent(self._connection, agent_id)

    @asynccontextmanager
    async def _published(self, scenarios: Sequence[Scenario]) -> AsyncIterator[Suite]:
        """A suite under a name of its own: run requests that name the real one never get it."""
        entries = tuple(
            SuiteScenario(
                scenario_id=scenario.id,
                file=f"{scenario.id}.yaml",
                document=canonical_json(single(scenario).model_dump(mode="json")),
            )
            for scenario in sorted(scenarios, key=lambda scenario: scenario.id)
        )
        content = canonical_json([self._mark, *(entry.document for entry in entries)])
        suite = Suite(
            suite_hash=hashlib.sha256(content.encode()).hexdigest(),
            name=f"{self._suite}-{self._mark}",
            version="1",
            owner="windtunnel scenarios lint",
            scenarios=entries,
        )
        published = await publish_suite(self._connection, suite)
        try:
            yield published
        finally:
            await append(self._connection, Outgoing(SUITES.full_name, suite.suite_hash, b""))


async def idle_findings(suite: LintedSuite, runs: LintRuns) -> list[Finding]:
    """Scenarios that an agent passes which does nothing. Raises as `LintRuns.play`."""
    async with runs.idle_agent() as agent_id:
        results = await runs.play("idle", [s.scenario for s in suite.scenarios], agent_id)
    return list(judged_idle(suite, results))


def judged_idle(suite: LintedSuite, results: Mapping[str, ScenarioAggregate]) -> Iterator[Finding]:
    """What the run against the idle agent shows."""
    for source in suite.scenarios:
        scenario = source.scenario
        if not passes(results.get(scenario.id)):
            continue
        if scenario.category is Category.ADVERSARIAL:
            yield about("passes-refusing", source, Found(("expect",), "refusing is enough"))
        else:
            message = "it passes when every turn is answered with a refusal"
            yield about("passes-doing-nothing", source, Found(("expect",), message))


async def mutant_findings(suite: LintedSuite, runs: LintRuns, agent_id: str) -> list[Finding]:
    """Expectations that decide nothing for an agent that passes. Raises as `LintRuns.play`."""
    results = await runs.play("reference", [s.scenario for s in suite.scenarios], agent_id)
    findings, pending = [], dict[str, Sequence[Mutant]]()
    for source in suite.scenarios:
        scenario = source.scenario
        if passes(results.get(scenario.id)):
            pending[scenario.id] = mutants(scenario)
        else:
            found = Found((), f"{agent_id} does not pass it: {_why(results.get(scenario.id))}")
            findings.append(about("cannot-tell", source, found))
    sources = {source.scenario.id: source for source in suite.scenarios}
    for number in range(max(map(len, pending.values()), default=0)):
        turned = {name: m[number] for name, m in pending.items() if number < len(m)}
        say(f"reversing an expectation in each of {len(turned)} scenarios")
        results = await runs.play(
            f"mutant-{number + 1}", [mutant.scenario for mutant in turned.values()], agent_id
        )
        for name, mutant in turned.items():
            if passes(results.get(name)):
                found = Found(mutant.path, f"it passes still when {mutant.what}")
                findings.append(about("cannot-fail", sources[name], found))
    return findings


def passes(result: ScenarioAggregate | None) -> bool:
    """Whether all sessions of a scenario passed."""
    return result is not None and result.planned > 0 and result.passed == result.planned


def _why(result: ScenarioAggregate | None) -> str:
    if result is None or not result.planned:
        return "it was not run"
    for dimension in result.dimensions:
        for example in dimension.examples:
            return f"{dimension.dimension}: {example.reason}"
    unscored = [d.dimension for d in result.dimensions if d.kind == "gate" and d.unscored]
    if unscored:
        return f"{', '.join(unscored)} could not be scored"
    return "; ".join(result.invalid_reasons) or "its session was lost"


def single(scenario: Scenario) -> Scenario:
    """The scenario with one session at a time and no pauses: load is not what is asked here."""
    changes: dict[str, object] = {}
    if scenario.load is not None:
        one = {"sessions": 1, "concurrency": 1, "arrival": None, "objectives": None}
        changes["load"] = scenario.load.model_copy(update=one)
    if scenario.user is not None:
        changes["user"] = scenario.user.model_copy(update={"think_ms": 0, "think": None})
    return scenario.model_copy(update=changes)
