"""The judge's briefs, looked up in the published suites. Nobody else makes one.

A suite may be read a little later than the sessions that came from it, so looking one up waits
within a bound.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from schemas.briefs import JudgeBrief, judge_brief
from schemas.errors import InvalidDocument
from schemas.loader import scenario_of
from schemas.registry import Suite

REMEMBERED = 10_000


class NoBrief(Exception):
    """There is no brief to judge by; the message says why."""


class Briefs:
    """Briefs by suite hash and scenario; the latest used are remembered."""

    def __init__(self, find: Callable[[str], Suite | None], wait_s: float) -> None:
        """`find` gives the suite with a content hash; `wait_s` is how long it may be missing."""
        self._find = find
        self._wait_s = wait_s
        self._published = asyncio.Event()
        self._known: OrderedDict[tuple[str, str], JudgeBrief] = OrderedDict()

    def published(self, _key: str, _suite: Suite) -> None:
        """To be called when a suite was read: whoever waits for one looks again."""
        self._published.set()

    async def get(self, suite_hash: str, scenario_id: str) -> JudgeBrief:
        """The brief of a scenario.

        Raises:
            NoBrief: no such suite was published in time, or it has no such scenario.
        """
        key = suite_hash, scenario_id
        brief = self._known.get(key)
        if brief is None:
            brief = self._made(await self._suite(suite_hash), scenario_id)
        self._known[key] = brief
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return brief

    async def _suite(self, suite_hash: str) -> Suite:
        try:
            async with asyncio.timeout(self._wait_s):
                # Nothing is awaited between looking and clearing, so no suite is missed.
                while (suite := self._find(suite_hash)) is None:
                    self._published.clear()
                    await self._published.wait()
                return suite
        except TimeoutError:
            raise NoBrief(
                f"suite {suite_hash} is not on the suites topic, after {self._wait_s:g} s"
            ) from None

    def _made(self, suite: Suite, scenario_id: str) -> JudgeBrief:
        for entry in suite.scenarios:
            if entry.scenario_id == scenario_id:
                try:
                    return judge_brief(scenario_of(entry))
                except InvalidDocument as error:
                    raise NoBrief(f"scenario {scenario_id} cannot be read: {error}") from None
        raise NoBrief(f"suite {suite.name} has no scenario {scenario_id}")
