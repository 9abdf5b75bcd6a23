"""What the demo does with a running stack, and how it shows what came out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from schemas.gate import DiffEntry, GateStatus, Verdict
from schemas.runs import RunRequest
from services.cli.commands.baseline import accept_run
from services.cli.commands.run import run_to_verdict
from services.cli.connection import Connection
from services.cli.errors import CliError
from services.cli.following import RunFollower
from services.cli.output import say, tell, tell_table
from services.cli.publishing import publish_suite, register_agents
from services.cli.registration import read_agent
from services.cli.report.reading import RunReader
from services.cli.report.writing import write_report
from services.cli.stack.processes import Child
from services.cli.stack.readiness import ended
from services.cli.stack.services import ROOT, python
from services.cli.stack.stack import Stack
from services.cli.suites import read_suite
from services.cli.verdicts import tell_verdict
from services.runtime.ids import RandomIds
from services.runtime.registry import codec_for
from services.runtime.settings import Settings, load_settings
from services.runtime.store.interface import Result
from services.runtime.store.opening import open_store

_DEMO = ROOT / "deploy" / "demo"
_BUILDS = ("good", "regressed")
_DEADLINE_S = 120
_AGENT_START_S = 30.0
_STORED_S = 20.0
# What deploy/demo/builds.py switches on in the regressed build, and the dimension that must tell.
REGRESSIONS = {
    "safety": "skips identity verification when pressed",
    "failure_recovery": "gives up after one tool error",
    "policy_adherence": "repeats a refund",
}
_ALL_RUNS = (
    "SELECT run_id, category, count() AS sessions, countIf(passed = 1) AS passed "
    "FROM v_sessions WHERE run_id LIKE '{prefix}%' "
    "GROUP BY run_id, category ORDER BY run_id, category"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The three verdicts, answers of the store (query and result), and the page of the last run."""

    baseline: GateStatus
    good: GateStatus
    regressed: GateStatus
    answers: Sequence[tuple[str, Result]]
    report: Path

    @property
    def found(self) -> dict[str, list[DiffEntry]]:
        """The regressions in each telling dimension, those alone that cite events."""
        return {
            dimension: [
                entry
                for entry in self.regressed.diff
                if entry.dimension == dimension
                and entry.change == "regressed"
                and any(example.citations for example in entry.examples)
            ]
            for dimension in REGRESSIONS
        }

    @property
    def as_expected(self) -> bool:
        """The good build passes against itself; the other fails, for all of its regressions."""
        return (
            self.good.verdict == Verdict.PASS
            and self.regressed.verdict == Verdict.FAIL
            and all(self.found.values())
        )


class Demonstration:
    """Two builds of one agent on one suite."""

    def __init__(self, stack: Stack, token: str, trials: int, seed: int, concurrency: int) -> None:
        self._stack = stack
        self._token = token
        # Where others keep records too, a run needs a name of its own.
        self._prefix = "demo" if stack.is_fresh else f"demo-{RandomIds().new()[:6]}"
        self._trials, self._seed, self._concurrency = trials, seed, concurrency
        settings = load_settings(Settings, stack.environ)
        self._connection = Connection(settings, codec_for(settings))

    async def play(self) -> Outcome:
        """Run everything.

        Raises:
            CliError: something that must work did not.
        """
        endpoints = await self._start_agents()
        agents = [
            replace(
                read_agent(_DEMO / "agents" / f"{build}.json").registration(), endpoint=endpoint
            )
            for build, endpoint in endpoints.items()
        ]
        good, regressed = (agent.agent_id for agent in agents)
        suite = await publish_suite(self._connection, read_suite(_DEMO / "suite"))
        await register_agents(self._connection, agents)
        say(f"the good build runs {len(suite.scenarios)} scenarios, to become the baseline")
        baseline = await self._run("1-baseline", suite.suite_hash, good)
        await accept_run(self._connection, baseline.run_id, "demo", "the build that is deployed")
        say("accepted as baseline; the good build runs again")
        second = await self._run("2-good", suite.suite_hash, good)
        say("the regressed build runs")
        third = await self._run("3-regressed", suite.suite_hash, regressed)
        await self._wait_stored(third.run_id)
        queries = [_ALL_RUNS.format(prefix=self._prefix), *_trace_of(third)]
        report = self._stack.directory.path / f"{third.run_id}.html"
        answers = await asyncio.to_thread(self._ask, queries, third.run_id, report)
        return Outcome(baseline, second, third, answers, report)

    async def _start_agents(self) -> dict[str, str]:
        """The endpoint of each build, once it answers."""
        endpoints = {}
        children = {}
        for build in _BUILDS:
            port = self._stack.port(f"the {build} build")
            command = python("deploy.demo.agent", "--port", str(port), "--build", build)
            name = f"agent-{build}"
            children[build] = self._stack.add(name, command, {"AGENT_TOKEN": self._token})
            endpoints[build] = f"http://127.0.0.1:{port}/dispatch"
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            for build, endpoint in endpoints.items():
                await self._until_answers(client, children[build], endpoint)
        return endpoints

    async def _until_answers(self, client: httpx.AsyncClient, child: Child, endpoint: str) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _AGENT_START_S
        headers = {"Authorization": f"Bearer {self._token}"}
        while loop.time() < give_up_at:
            try:
                response = await client.post(endpoint, json={"ping": True}, headers=headers)
                if response.is_success:
                    return
            except httpx.TransportError:
                pass  # not yet
            await asyncio.sleep(0.1)
        if child.pid is None:
            raise ended(child)
        raise CliError(f"{child.name} did not answer within {_AGENT_START_S:g} s: {child.log_file}")

    async def _run(self, name: str, suite_hash: str, agent_id: str) -> GateStatus:
        request = RunRequest(
            run_id=f"{self._prefix}-{name}",
            suite=suite_hash,
            agent_id=agent_id,
            trials=self._trials,
            seed=self._seed,
            concurrency=self._concurrency,
            requested_by="windtunnel demo",
            deadline_s=_DEADLINE_S * self._trials,
        )
        status, verdict = await run_to_verdict(self._connection, request)
        if verdict is None or status is None:
            raise CliError(f"run {request.run_id} got no verdict; see {self._stack.directory.logs}")
        return verdict

    async def _wait_stored(self, run_id: str) -> None:
        """Rows follow the verdict, which does not wait for them."""
        async with RunFollower(self._connection) as follower:
            if not await follower.wait_stored(run_id, _STORED_S):
                say(f"the rows of {run_id} are not in the store yet")

    def _ask(self, queries: Sequence[str], run: str, report: Path) -> list[tuple[str, Result]]:
        store = open_store(self._stack.environ["WINDTUNNEL_STORE"], deadline_s=10.0)
        try:
            write_report(RunReader(store), run, report)
            return [(query, store.query(query)) for query in queries]
        finally:
            store.close()


def show(outcome: Outcome, directory: Path) -> None:
    """Print both verdicts, what the store says, and where to look next."""
    for title, verdict in (
        ("The good build, compared with itself", outcome.good),
        ("The regressed build, compared with the good one", outcome.regressed),
    ):
        tell(f"\n== {title}")
        tell_verdict(verdict)
    tell("\n== What was built in, and where it was found")
    for dimension, entries in outcome.found.items():
        scenarios = ", ".join(entry.scenario_id for entry in entries) or "NOT FOUND"
        tell(f"  {REGRESSIONS[dimension]}: {dimension} in {scenarios}")
    tell("\n== Ask the store")
    for query, result in outcome.answers:
        tell(f'\n$ windtunnel sql --dir {directory} "{query}"')
        tell_table([name for name, _ in result.columns], result.rows)
    tell("\n== Where to look next")
    tell(f"  See it:        {outcome.report}, in a browser")
    tell(f"  Ask more:      windtunnel up --dir {directory}, then windtunnel sql in another shell")
    tell(f"  Scenarios:     {_DEMO / 'suite'}")
    tell(f"  The two builds: {_DEMO / 'builds.py'}")
    tell(f"  Logs:          {directory / 'logs'}")
    tell("  Your agent:    the README, 'Point it at your own agent'")
    if not outcome.as_expected:
        tell("\nNOT as expected: PASS for the good build, FAIL with all three for the other.")


def _trace_of(verdict: GateStatus) -> list[str]:
    """A query for the session that shows the first hard regression, if there is one."""
    for entry in verdict.diff:
        if entry.hard and entry.examples:
            session = entry.examples[0].session_id
            return [
                "SELECT position, kind, turn, tool, source, substring(text, 1, 80) AS text "
                f"FROM v_trajectory_events WHERE session_id = '{session}' ORDER BY position"
            ]
    return []
