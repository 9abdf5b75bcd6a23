"""The judge's shell: reads trajectories and scores, appends scores and notices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from pydantic import Field, SecretStr

from schemas.registry import Suite
from schemas.scores import SessionScored
from schemas.topics import RUN_PROGRESS, SCORES, SUITES, TRAJECTORIES
from services.judge.briefs import Briefs, NoBrief
from services.judge.core import cannot_judge, judge_session
from services.judge.llm import LlmJudge
from services.judge.sessions import SCORE, JudgeCore, JudgedSession, notice_of
from services.runtime import metrics as m
from services.runtime.bus.records import Incoming
from services.runtime.judging import JudgeModelSettings
from services.runtime.lookup import Lookup
from services.runtime.metrics import Metrics
from services.runtime.model_calls import calls_noted
from services.runtime.service import Publication, Service
from services.runtime.sessions import SessionTable
from services.runtime.settings import Settings
from services.runtime.telemetry import Telemetry, start_telemetry
from services.runtime.telemetry_judging import judge_spans

_SUITES = 1000


class JudgeSettings(JudgeModelSettings, Settings):
    """The judge's configuration."""

    service: ClassVar[str] = "judge"

    judge_model_api_base: str = Field(default="", description="Empty for the provider's own.")
    judge_model_api_key: SecretStr = Field(default=SecretStr(""))
    judge_model_timeout_s: float = Field(
        default=120, gt=0, description="For one question, retries included."
    )
    judge_model_concurrency: int = Field(default=16, ge=1, description="Questions at once.")
    suite_wait_s: float = Field(
        default=30, ge=0, description="How long a session's suite may be missing."
    )
    concurrency: int = Field(default=256, ge=1, description="Sessions being judged at once.")


class Judge:
    """Performs what the core wants."""

    def __init__(
        self,
        service: Service[JudgeSettings],
        briefs: Briefs,
        llm: LlmJudge | None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._service = service
        self._briefs = briefs
        self._llm = llm
        self._telemetry = telemetry

    async def act(self, state: JudgedSession, action: Hashable) -> None:
        """Score the session, or tell the run's coordinator that it was scored."""
        if action == SCORE:
            began_ms = self._service.clock.now_ms()
            with calls_noted(self._service.clock.now_ms) as calls:
                scored = await self._score(state)
            ended_ms = self._service.clock.now_ms()
            await self._service.publish(Publication(SCORES, state.session_id, scored))
            self._count(scored)
            if (telemetry := self._telemetry) is not None:
                telemetry.record(
                    lambda: judge_spans(
                        scored, start_ms=began_ms, end_ms=ended_ms, calls=calls,
                        contents=telemetry.contents,
                    )
                )  # fmt: skip
        elif state.scored is not None:
            notice = notice_of(state.scored, self._service.clock.now_ms())
            await self._service.publish(Publication(RUN_PROGRESS, notice.run_id, notice))
            state.notified = True

    async def _score(self, state: JudgedSession) -> SessionScored:
        started = state.events[0].session_started
        assert started is not None
        now_ms = self._service.clock.now_ms
        try:
            brief = await self._briefs.get(started.suite_hash, started.scenario_id)
        except NoBrief as error:
            self._service.log.warning("no brief", session=state.session_id, error=str(error))
            return cannot_judge(state.events, str(error), now_ms())
        return await judge_session(state.events, brief, now_ms(), self._llm)

    def _count(self, scored: SessionScored) -> None:
        for score in scored.dimensions:
            # criteria.1, criteria.2, ... are as many as authors write: one label for all.
            name = score.dimension.partition(".")[0]
            self._service.metrics.add(m.SCORES, dimension=name, status=score.status)


def model_judge(settings: JudgeSettings, metrics: Metrics) -> LlmJudge | None:
    """The judge that asks the configured model, if one is."""
    if not settings.judge_model:
        return None
    return LlmJudge(
        settings,
        metrics,
        api_base=settings.judge_model_api_base,
        api_key=settings.judge_model_api_key,
        timeout_s=settings.judge_model_timeout_s,
        concurrency=settings.judge_model_concurrency,
    )


async def start(service: Service[JudgeSettings]) -> None:
    """Wire the service: every ended session is scored, and its run's coordinator told."""
    settings = service.settings
    telemetry = await start_telemetry(service)
    llm = model_judge(settings, service.metrics)
    if llm is not None:
        await llm.prepare()

    def bury(incoming: Incoming, reason: str) -> None:
        service.watch(service.bury(incoming, reason), "dead letter")

    def find(suite_hash: str) -> Suite | None:
        return suites.get(suite_hash)

    briefs = Briefs(find, settings.suite_wait_s)
    suites = Lookup(service, SUITES, Suite, limit=_SUITES, changed=briefs.published)
    await suites.start()
    judge = Judge(service, briefs, llm, telemetry)
    table = SessionTable(
        service,
        JudgeCore(service.codec, bury),
        judge.act,
        foreign=SCORES,
        concurrency=settings.concurrency,
    )
    await service.consume([TRAJECTORIES, SCORES], table)
    service.log.info("judges sessions", judge=settings.judge_pin())
