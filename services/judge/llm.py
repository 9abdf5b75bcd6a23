"""A judge of criteria, quality and generative responses that asks a pinned model.

Criteria are asked one by one, or all of a session in one call; each as often as there are samples.
Quality is asked in one call, generative responses one by one, both at temperature 0. Answers are
JSON by a schema, and a wrong one gets one chance of repair. Refusals, timeouts, provider errors
and unusable answers give no verdict, and say so: never a pass, never a fail. Reasons name an
error's type and status but not its text, which can quote keys and prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import SecretStr

from services.judge.assertions.rating import Question, Rating, Unusable, asked, rated
from services.judge.evaluators.criteria import Judgement
from services.judge.evaluators.quality import QualityRating
from services.judge.questions import (
    A,
    Presentation,
    Sheet,
    answers,
    criteria_sheet,
    labels,
    presentations,
    quality_sheet,
)
from services.judge.trajectory import Trajectory
from services.judge.transcript import Transcript, TranscriptTooLong, render
from services.judge.voting import majority, pairs
from services.runtime import metrics as m
from services.runtime.ids import digest
from services.runtime.judging import JudgeModelSettings
from services.runtime.metrics import Metrics
from services.runtime.models import Model, ModelSettings, ModelUnusable

_ATTEMPTS = 3
_UNUSABLE = "the judge's model gave no usable verdict"


class _NoAnswer(Exception):
    """The model gave no usable answer; `outcome` is what is counted."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


T = TypeVar("T")
Prompt = tuple[list[dict[str, str]], dict[str, Any]]


class LlmJudge:
    """See `CriterionJudge`, `QualityJudge` and `ResponseJudge`. `timeout_s` bounds one question,
    retries and repair included, from when it is its turn: `concurrency` questions are asked at
    once.
    """

    def __init__(
        self,
        settings: JudgeModelSettings,
        metrics: Metrics,
        *,
        api_base: str = "",
        api_key: SecretStr | None = None,
        timeout_s: float = 120.0,
        concurrency: int = 16,
    ) -> None:
        """`settings` name a model."""
        model = ModelSettings(
            model=settings.judge_model,
            api_base=api_base,
            api_key=api_key or SecretStr(""),
            temperature=0,
            timeout_s=timeout_s,
            attempts=_ATTEMPTS,
            concurrency=concurrency,
        )
        # What is counted here are questions, each once.
        self._model = Model(model, "judge", metrics, count_calls=False)
        self._metrics = metrics
        self._settings = settings
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)

    @property
    def model(self) -> str:
        return self._settings.judge_model

    @property
    def pin(self) -> str:
        return self._settings.judge_pin()

    @property
    def quality(self) -> tuple[str, ...]:
        return self._settings.judge_quality

    async def prepare(self) -> None:
        """Load the library now, so that no criterion's time goes into it."""
        await self._model.prepare()

    async def judge(
        self, criteria: Sequence[str], trajectory: Trajectory, outcome: str
    ) -> Sequence[Judgement]:
        """Each criterion's verdict. Raises nothing but cancellation."""
        samples, seed = self._settings.judge_samples, trajectory.start.seed
        everything = tuple(range(len(criteria)))
        transcript = cache(lambda: render(trajectory))
        groups = [everything] if self._settings.judge_batch else [(n,) for n in everything]

        async def sampled(group: Sequence[int]) -> list[Judgement]:
            asked_about = [criteria[number] for number in group]
            shown = presentations(len(group), samples, seed)
            votes = await asyncio.gather(
                *(
                    self._sample(asked_about, one, number, trajectory, outcome, transcript)
                    for number, one in enumerate(shown)
                )
            )
            return [self._voted([vote[n] for vote in votes]) for n in range(len(group))]

        judged = await asyncio.gather(*map(sampled, groups))
        return [judgement for group in judged for judgement in group]

    async def rate_quality(
        self, scales: Mapping[str, str], trajectory: Trajectory, outcome: str
    ) -> Mapping[str, QualityRating]:
        """A rating on each scale. Raises nothing but cancellation."""

        def sheet() -> Sheet[Any]:
            return quality_sheet(scales, outcome, render(trajectory))

        given, missing = await self._filled(tuple(scales), sheet, trajectory)
        ratings = {name: QualityRating(None, why) for name, why in missing.items()}
        for name, (answer, model) in given.items():
            ratings[name] = QualityRating(
                answer.rating, answer.rationale, tuple(answer.citations), model
            )
        return ratings

    async def rate(self, question: Question) -> Rating:
        """One generative response's score. Raises nothing but cancellation."""
        try:
            return await self._asked(
                lambda: asked(question), lambda text, model: rated(question, text, model)
            )
        except _NoAnswer as error:
            return Rating(score=None, rationale=str(error))

    async def _sample(
        self,
        criteria: Sequence[str],
        shown: Presentation,
        number: int,
        trajectory: Trajectory,
        outcome: str,
        transcript: Callable[[], Transcript],
    ) -> list[Judgement]:
        """One verdict on each criterion, in their own order."""

        def sheet() -> Sheet[Any]:
            ordered = [criteria[position] for position in shown.order]
            return criteria_sheet(ordered, shown.fail_first, outcome, transcript())

        settings = self._settings
        seed = None
        if settings.judge_samples > 1:
            # The sessions' seeds are the run's; with the criterion, no two questions share one.
            parts = ("judge", trajectory.start.seed, number, *criteria)
            seed = int.from_bytes(digest(*parts, size=4), "big") >> 1
        names = labels(len(criteria))
        given, missing = await self._filled(
            names, sheet, trajectory, seed=seed, temperature=settings.judge_model_temperature
        )
        verdicts = {label: Judgement(passed=None, rationale=why) for label, why in missing.items()}
        for label, (answer, model) in given.items():
            verdicts[label] = Judgement(
                answer.verdict == "pass", answer.rationale, tuple(answer.citations), model
            )
        by_position = dict(zip(shown.order, names, strict=True))
        return [verdicts[by_position[position]] for position in range(len(criteria))]

    def _voted(self, votes: Sequence[Judgement]) -> Judgement:
        verdict, outcome = majority(votes, self._settings.judge_agreement)
        if len(votes) > 1:
            self._metrics.add(m.JUDGE_MAJORITIES, outcome=outcome)
        for one, other in pairs(votes):
            same = one.passed is other.passed
            self._metrics.add(m.JUDGE_ORDER_PAIRS, outcome="same" if same else "flipped")
        return verdict

    async def _filled(
        self,
        names: Sequence[str],
        sheet: Callable[[], Sheet[A]],
        trajectory: Trajectory,
        *,
        seed: int | None = None,
        temperature: float | None = None,
    ) -> tuple[dict[str, tuple[A, str]], dict[str, str]]:
        """The usable answers by label, each with the name of the model that gave it; and for the
        other labels why there is none. Of two usable answers under one label the first counts.
        """
        given: dict[str, tuple[A, str]] = {}
        wrong: dict[str, str] = {}
        made: list[Sheet[A]] = []

        def prompt() -> Prompt:
            made.append(sheet())
            return made[0].messages(), made[0].schema

        def read(text: str, answered_by: str) -> None:
            wrong.clear()
            usable, unusable = answers(made[0], text, trajectory.steps)
            for label, answer in usable.items():
                given.setdefault(label, (answer, answered_by))
            wrong.update((label, why) for label, why in unusable.items() if label not in given)
            if wrong:
                said = wrong.items()
                words = (f"{label}: {why}" if len(names) > 1 else why for label, why in said)
                raise Unusable("; ".join(list(words)[:5]))

        try:
            await self._asked(prompt, read, seed=seed, temperature=temperature)
        except _NoAnswer as error:
            why = {name: f"{_UNUSABLE} ({wrong[name]})" for name in names if name in wrong}
            return given, {n: why.get(n, str(error)) for n in names if n not in given}
        return given, {}

    async def _asked(
        self,
        prompt: Callable[[], Prompt],
        read: Callable[[str, str], T],
        *,
        seed: int | None = None,
        temperature: float | None = None,
    ) -> T:
        """What `read` makes of the answer and the answering model's name.

        Raises:
            _NoAnswer: there is none, and why; it is counted.
        """
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                answer = await self._conversed(*prompt(), read, seed, temperature)
        except _NoAnswer as error:
            no_answer = error
        except TimeoutError:
            no_answer = _NoAnswer("timeout", f"the judge's model took over {self._timeout_s:g} s")
        except TranscriptTooLong as error:
            no_answer = _NoAnswer("too_long", str(error))
        except ModelUnusable as error:
            detail = f"{error.error}{f', status {error.status}' if error.status else ''}"
            no_answer = _NoAnswer("error", f"the judge's model could not be asked ({detail})")
        except Exception as error:
            name = type(error).__name__
            no_answer = _NoAnswer("error", f"the judge's model could not be asked ({name})")
        else:
            self._model.count("ok")
            return answer
        # Outside of the handlers, so that the provider's exception is not chained.
        self._model.count(no_answer.outcome)
        raise no_answer

    async def _conversed(
        self,
        messages: list[dict[str, str]],
        schema: dict[str, Any],
        read: Callable[[str, str], T],
        seed: int | None,
        temperature: float | None,
    ) -> T:
        first, why = messages, ""
        for _ in range(2):
            reply = await self._model.ask(messages, schema, seed, temperature)
            if reply.refused:
                raise _NoAnswer("refused", "the judge's model refused to answer")
            try:
                return read(reply.text, reply.model)
            except Unusable as error:
                why = f"{error}; it was cut off" if reply.truncated else str(error)
            messages = [
                *first,
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": f"That cannot be used: {why}. Answer again."},
            ]
        raise _NoAnswer("unusable", f"{_UNUSABLE} ({why})")
