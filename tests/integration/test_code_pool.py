"""Sandboxes that are ready beforehand: how many, for whom, for how long, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from schemas.registry import CodeSource
from services.dispatcher.code.interpreter import this_interpreter
from services.dispatcher.code.pool import Leased, SandboxPool
from services.dispatcher.code.sandbox import Sandbox
from services.dispatcher.code.tools import find_tools
from tests.support.code_agents import Desk, desk, require_bubblewrap, sandbox_processes, until


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_bubblewrap()


def with_pool(
    folder: Path, work: Callable[[SandboxPool, Desk], Awaitable[None]], **limits: Any
) -> None:
    """Run something with a pool; afterwards no sandbox is left, whatever it did."""

    async def go() -> None:
        async with desk(folder, **limits) as one:
            tools = find_tools(this_interpreter())
            pool = SandboxPool(one.store, tools, one.limits, structlog.get_logger())
            try:
                await work(pool, one)
            finally:
                await pool.close()
                assert not sandbox_processes()
            assert all(not entry.holders for entry in one.cache._entries.values())

    asyncio.run(go())


async def code(one: Desk, name: str = "a") -> CodeSource:
    archive = await one.publish(f"# {name}\ndef run(t, **k): ...\n")
    return archive.code("main:run")


@pytest.mark.req("R20")
def test_the_first_is_started_and_the_next_is_ready(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        first = await pool.take(source)
        assert not first.warm
        await until(lambda: pool.ready == 2)
        second = await pool.take(source)
        assert second.warm
        assert second.sandbox.root_pid != first.sandbox.root_pid
        await pool.give_back(first)
        assert not first.sandbox.is_alive
        await pool.give_back(second)

    with_pool(tmp_path, work, pool=4)


@pytest.mark.req("R20")
def test_nothing_of_the_source_has_run_in_one_that_waits(tmp_path: Path) -> None:
    """What is imported ahead could do things before its turn, or keep them beyond it."""

    async def work(pool: SandboxPool, one: Desk) -> None:
        archive = await one.publish("open('/tmp/imported', 'w')\ndef run(t, **k): ...\n")
        leased = await pool.take(archive.code("main:run"))
        await until(lambda: pool.ready == 2)
        waiting = [other for queue in pool._ready.values() for other in queue]
        for ready in (leased, *waiting):
            root = Path(f"/proc/{ready.sandbox.root_pid}/root")
            assert os.listdir(root / "tmp") == []
            assert os.listdir(root / "app") == ["main.py"]
        await pool.give_back(leased)

    with_pool(tmp_path, work, pool=3)


@pytest.mark.req("R20")
def test_no_more_than_the_operator_allows_are_kept(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        taken = [await pool.take(source) for _ in range(5)]
        await until(lambda: not pool._starts)
        assert pool.ready == 2
        await asyncio.gather(*(pool.give_back(leased) for leased in taken))
        assert pool.ready == 2
        assert len({leased.sandbox.root_pid for leased in taken}) == 5

    with_pool(tmp_path, work, pool=2)


@pytest.mark.req("R20")
def test_without_a_pool_each_is_started_when_it_is_needed(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        for _ in range(2):
            leased = await pool.take(source)
            assert not leased.warm
            await pool.give_back(leased)
        assert not sandbox_processes()

    with_pool(tmp_path, work, pool=0)


@pytest.mark.req("R20")
def test_the_source_unused_for_longest_gives_way(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        sources = [await code(one, name) for name in "abc"]

        async def use(source: CodeSource) -> Leased:
            leased = await pool.take(source)
            await pool.give_back(leased)
            await until(lambda: not pool._starts)
            return leased

        await use(sources[0])
        await use(sources[1])
        await use(sources[0])
        await use(sources[2])
        assert pool.ready <= 2
        assert (await use(sources[2])).warm
        assert not (await use(sources[1])).warm

    with_pool(tmp_path, work, pool=2)


@pytest.mark.req("R20")
def test_what_waits_for_too_long_is_given_up(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        await pool.give_back(await pool.take(await code(one)))
        await until(lambda: not pool._starts and not pool.ready and not pool._tasks)
        assert not sandbox_processes()

    with_pool(tmp_path, work, pool=2, pool_idle_s=0.2)


@pytest.mark.req("R20")
def test_one_that_died_while_it_waited_is_not_handed_out(tmp_path: Path) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        await pool.give_back(await pool.take(source))
        await until(lambda: pool.ready > 0 and not pool._starts)
        waiting = [leased.sandbox for queue in pool._ready.values() for leased in queue]
        for sandbox in waiting:
            os.kill(sandbox.root_pid, signal.SIGKILL)
        await until(lambda: not any(sandbox.is_alive for sandbox in waiting))
        leased = await pool.take(source)
        assert leased.sandbox.is_alive
        await pool.give_back(leased)

    with_pool(tmp_path, work, pool=2)


@pytest.mark.req("R20")
@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.02, 0.04, 0.08])
def test_who_stops_waiting_for_a_start_leaves_nothing(tmp_path: Path, pause_s: float) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        taking = asyncio.create_task(pool.take(source))
        await asyncio.sleep(pause_s)
        taking.cancel()
        try:
            await pool.give_back(await taking)
        except asyncio.CancelledError:
            assert pool.taken == 0

    with_pool(tmp_path, work, pool=0)


@pytest.mark.req("R20")
@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.05])
def test_closing_in_the_middle_of_starts_leaves_nothing(tmp_path: Path, pause_s: float) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        taking = [asyncio.create_task(pool.take(source)) for _ in range(3)]
        await asyncio.sleep(pause_s)
        await pool.close()
        for result in await asyncio.gather(*taking, return_exceptions=True):
            if isinstance(result, BaseException):
                assert isinstance(result, LookupError)
            else:
                await pool.give_back(result)
        with pytest.raises(LookupError, match="stopping"):
            await pool.take(source)

    with_pool(tmp_path, work, pool=3)


@pytest.mark.req("R20")
def test_starts_that_fail_cost_nothing_but_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(pool: SandboxPool, one: Desk) -> None:
        source = await code(one)
        real = Sandbox.start

        async def fails(*_: Any) -> Sandbox:
            raise LookupError("no sandbox today")

        first = await pool.take(source)
        monkeypatch.setattr(Sandbox, "start", fails)
        await until(lambda: not pool._starts)
        while pool.ready:
            await pool.give_back(await pool.take(source))
        with pytest.raises(LookupError, match="today"):
            await pool.take(source)
        monkeypatch.setattr(Sandbox, "start", real)
        await pool.give_back(first)
        assert not pool._starting.total()
        second = await pool.take(source)
        await pool.give_back(second)

    with_pool(tmp_path, work, pool=1)
