"""The examination: which turns are posted, with which behaviour of the tools, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from services.cli.conformance import calls, judging, sessions
from services.cli.conformance.catalogue import BY_ID, CATALOGUE
from services.cli.conformance.findings import Finding, failed, not_applicable, passed
from services.cli.conformance.model import AgentTarget, CheckResult
from services.cli.conformance.posting import Poster, Turn, Variant
from services.cli.conformance.probe import Probe
from services.cli.conformance.recording import Barrier, Behaviour, Run
from services.runtime.clock import Clock, SystemClock
from services.runtime.ids import Ids, RandomIds, decimal_id, digest
from services.runtime.tokens import Claims, Tokens

OnResult = Callable[[CheckResult], None]
RETRY_AFTER_S = 1
_TOKEN_MS = 3_600_000
_PLAIN = Variant()
_TURN_CHECKS = ("turn_answered", "in_time", "final_response", "rich_answer")
_NEEDS_TURN = ("ping_exact", "body_is_enough", "header_fallback", "additive_fields", "empty_state",
               "sessions_apart")  # fmt: skip
_NEEDS_CALL = ("decoded_once", "text_response", "array_response", "error_response",
               "refusal_survived", "retries_unavailable", "retries_rate_limit",
               "slow_tool")  # fmt: skip


async def run_checks(
    target: AgentTarget,
    *,
    on_result: OnResult,
    clock: Clock | None = None,
    ids: Ids | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> list[CheckResult]:
    """Examine an agent's endpoint; one result for each check of `CATALOGUE`, in its order.

    Args:
        on_result: Called with each result as soon as it is known, in no particular order.

    Raises:
        ConfigurationError: `listen_host` is no address of this machine.
    """
    examination = _Examination(target, on_result, clock or SystemClock(), ids or RandomIds(), sleep)
    try:
        await examination.run()
    finally:
        await examination.close()
    return [examination.results[spec.id] for spec in CATALOGUE]


class _Examination:
    def __init__(
        self,
        target: AgentTarget,
        on_result: OnResult,
        clock: Clock,
        ids: Ids,
        sleep: Callable[[float], Awaitable[Any]],
    ) -> None:
        self._target, self._on_result, self._clock, self._sleep = target, on_result, clock, sleep
        self._seed = ids.new()
        self._tokens = Tokens(digest("conformance", self._seed).hex())
        self._probe = Probe(clock, target.tools, target.responses)
        self._poster = Poster(target, clock)
        self._opened = 0
        self._shape = "object"
        self._turns: list[Turn] = []
        """In turn; those that were posted at once are judged apart."""
        self.results: dict[str, CheckResult] = {}

    async def close(self) -> None:
        await self._poster.close()
        await self._probe.stop()

    async def run(self) -> None:
        await self._probe.start(self._target.listen_host, self._target.advertised_host)
        if not await self._pings():
            for spec in CATALOGUE:
                self._say(not_applicable(spec.id, "the endpoint cannot be reached"))
            return
        plain, findings = await self._plain()
        for finding in findings:
            self._say(finding)
        together: list[Turn] = []
        if plain.answer.ok:
            await self._variants(plain)
            await self._behaviours(plain)
            together = await self._together(plain)
        else:
            for check in (*_NEEDS_TURN, *_NEEDS_CALL):
                self._say(not_applicable(check, "no turn was answered"))
        await self._sleep(self._target.settle_s)
        self._overall(together)

    async def _pings(self) -> bool:
        """Whether anybody listens at the endpoint."""
        right = await self._poster.ping("right")
        self._say((passed if right.ok else failed)("ping_answered", str(right)))
        if right.problem == "unreachable":
            return False
        if not (self._target.auth_header and self._target.auth_value):
            for check in ("ping_needs_auth", "ping_checks_auth", "turn_needs_auth"):
                self._say(not_applicable(check, "no auth header is configured"))
            return True
        for check, auth in (("ping_needs_auth", "none"), ("ping_checks_auth", "wrong")):
            self._say(judging.refused(check, [await self._poster.ping(auth)]))
        turns = [await self._turn(Variant(auth=auth)) for auth in ("none", "wrong")]
        made = sum(len(turn.run.calls) for turn in turns)
        answers = [turn.answer for turn in turns]
        self._say(judging.refused("turn_needs_auth", answers, made))
        return True

    async def _plain(self) -> tuple[Turn, list[Finding]]:
        """The turn that the others are compared with, and what it shows.

        An agent that decodes responses twice can do nothing with objects. Where the first turn
        looks like that, it is tried with what such an agent expects, and the others follow suit.
        """
        plain = await self._turn(_PLAIN)
        if not plain.run.answered:
            return plain, [*judging.plain_turn(plain), *self._without_calls(plain)]
        decoded = passed("decoded_once", "the agent shows the object that the tool responded")
        if not judging.shows_response(plain):
            encoded = await self._turn(_PLAIN, Behaviour(shape="encoded"))
            better = encoded.answer.quality > plain.answer.quality
            if better or judging.shows_response(encoded):
                seen = "the agent can use a response only when it is an object in a string"
                decoded = failed("decoded_once", seen)
                plain, self._shape = encoded, "encoded"
            elif plain.answer.ok:
                seen = "the answer shows nothing of the tool's response"
                decoded = not_applicable("decoded_once", seen)
            else:
                decoded = not_applicable("decoded_once", "no turn was answered")
        return plain, [*judging.plain_turn(plain), decoded]

    def _without_calls(self, plain: Turn) -> list[Finding]:
        why = "the agent made no tool call that could be answered"
        if not plain.run.seen and not self._probe.strays:
            why = "the agent made no tool call for this instruction"
            if self._target.advertised_host is None:
                host = self._target.listen_host
                why += f", or cannot reach {host}, where its proxy listens"
        return [not_applicable(check, why) for check in _NEEDS_CALL] if plain.answer.ok else []

    async def _variants(self, plain: Turn) -> None:
        """Turns whose envelope differs."""
        for check, variant, calling in (
            ("ping_exact", Variant(ping=True), True),
            ("body_is_enough", Variant(headers=False), True),
            ("header_fallback", Variant(body=False), True),
            ("additive_fields", Variant(additive=True), True),
            ("empty_state", Variant(empty_state=True), False),
        ):
            turn = await self._turn(variant)
            if calling and plain.run.answered and not turn.run.answered and turn.answer.ok:
                turn = await self._turn(variant)  # a model may differ from one time to the next
            self._say(judging.as_good(check, turn, plain, calls=calling))

    async def _behaviours(self, plain: Turn) -> None:
        """Turns whose tools behave differently."""
        if not plain.run.answered:
            return
        for check, shape in (
            ("text_response", "text"),
            ("array_response", "array"),
            ("error_response", "error"),
        ):
            if self._shape == "encoded":
                why = "cannot be told while responses are decoded twice (decoded_once)"
                self._say(not_applicable(check, why))
                continue
            turn = await self._calling(Behaviour(shape=shape))
            self._say(judging.shape_handled(check, turn, plain))
        turn = await self._calling(Behaviour(self._shape, refuse_first="arguments_invalid"))
        if any(call.scripted for call in turn.run.calls):
            self._say(judging.as_good("refusal_survived", turn, plain))
        else:
            self._say(not_applicable("refusal_survived", "no tool call was made this time"))
        turn = await self._calling(Behaviour(self._shape, refuse_first="session_not_ready"))
        self._say(judging.retried("retries_unavailable", turn, plain, 0.0))
        turn = await self._calling(
            Behaviour(self._shape, refuse_first="rate_limited", retry_after_s=RETRY_AFTER_S)
        )
        self._say(judging.retried("retries_rate_limit", turn, plain, RETRY_AFTER_S))
        slow_s = self._target.slow_tool_s
        turn = await self._calling(Behaviour(self._shape, slow_first_s=slow_s))
        self._say(judging.slow_tool(turn, plain, slow_s))

    async def _calling(self, behaviour: Behaviour) -> Turn:
        """A turn in which a call is expected; once more if there was none."""
        turn = await self._turn(_PLAIN, behaviour)
        return turn if turn.run.calls else await self._turn(_PLAIN, behaviour)

    async def _together(self, plain: Turn) -> list[Turn]:
        """Turns posted at once, their first calls held until all have made one."""
        if self._target.sessions < 2:
            self._say(not_applicable("sessions_apart", "fewer than two turns at once were asked"))
            return []
        all_turns: list[Turn] = []
        retries = self.results.get("retries_unavailable")
        for _ in range(2):  # a model that calls nothing, or twice, may look guilty once
            wait_s = min(30.0, 1.0 + 3 * sessions.before_first_call(plain))
            barrier = Barrier(self._target.sessions, wait_s) if plain.run.answered else None
            again = retries is not None and retries.outcome == "passed"
            behaviour = Behaviour(
                self._shape, barrier=barrier,
                # Who calls again does so after all the others have come in.
                refuse_first="session_not_ready" if again and barrier else "",
            )  # fmt: skip
            runs = [self._open(behaviour) for _ in range(self._target.sessions)]
            turns = await asyncio.gather(*(self._poster.turn(_PLAIN, run) for run in runs))
            all_turns += turns
            finding = sessions.apart(turns, plain, list(self._probe.runs.values()))
            if finding.outcome != "failed":
                break
        self._say(finding)
        return all_turns

    def _overall(self, together: list[Turn]) -> None:
        """What is judged over all requests that came in."""
        tools = self._target.tools
        schemas = None if tools is None else {t.name: orjson.loads(t.input_schema) for t in tools}
        turns = self._turns
        for finding in (
            calls.call_path(turns, self._probe.strays),
            calls.call_auth(turns),
            calls.call_body(turns, schemas or {}),
            calls.tool_known(turns, tools is not None),
            calls.arguments_valid(turns, schemas),
            calls.call_rate(turns),
            calls.call_size(turns),
            calls.actor(turns),
            calls.trace(turns),
            judging.unwrapped(turns),
            sessions.no_late_call(turns),
            sessions.token_kept([*turns, *together], self._target.auth_value, self._probe.strays),
        ):
            self._say(finding)

    def _open(self, behaviour: Behaviour) -> Run:
        self._opened += 1
        run_id = digest("run", self._seed, self._opened).hex()
        now_ms = self._clock.now_ms()
        token = self._tokens.mint(
            Claims(
                session_id=digest("session", run_id).hex(), run_id=run_id, jti=run_id, turn=1,
                conversation=1, dispatch_id=run_id, issued_at_ms=now_ms,
                expires_at_ms=now_ms + _TOKEN_MS,
            )
        )  # fmt: skip
        reference = f"RF-{decimal_id('reference', run_id) % 10**10:010d}"
        return self._probe.open(run_id, token, reference, behaviour)

    async def _turn(self, variant: Variant, behaviour: Behaviour | None = None) -> Turn:
        run = self._open(behaviour or Behaviour(self._shape))
        turn = await self._poster.turn(variant, run)
        self._turns.append(turn)
        return turn

    def _say(self, finding: Finding) -> None:
        if finding.id in self.results:
            return
        spec = BY_ID[finding.id]
        seen = finding.seen
        for secret in self._secrets():
            seen = seen.replace(secret, "***")
        result = CheckResult(
            spec.id, spec.requirement, spec.level, finding.outcome, spec.expected, seen,
            spec.mend if finding.outcome == "failed" else "",
        )  # fmt: skip
        self.results[spec.id] = result
        self._on_result(result)

    def _secrets(self) -> list[str]:
        value = self._target.auth_value
        known = [run.token for run in self._probe.runs.values()]
        if value:
            own = value.rpartition(" ")[2]
            known += [value] if len(own) < sessions.MIN_SECRET else [value, own]
        return known
