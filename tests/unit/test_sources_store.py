"""Sources read back from their topic: whole, verified, bounded on disk, and gone at the end."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from schemas.registry import CodeSource, SourcePart
from services.runtime.bus.errors import BusUnavailable
from services.runtime.bus.records import Incoming
from services.runtime.sources.archive import PART_BYTES, Archive, pack
from services.runtime.sources.cache import SourceCache
from tests.support.code_agents import Desk, until

LARGE = random.Random(1).randbytes(2 * PART_BYTES)


def source(name: str, size: int = 100) -> Archive:
    return pack({"main.py": f"# {name}\n".encode() + b"#" * size}, "paste")


def with_desk(folder: Path, work: Any, **limits: Any) -> None:
    async def go() -> None:
        desk = Desk(folder, **limits)
        try:
            await work(desk)
        finally:
            await desk.close()

    asyncio.run(go())
    assert list(folder.iterdir()) == []


def apply(desk: Desk, *parts: SourcePart) -> None:
    for part in parts:
        desk.store.apply(desk.topic.part(part))


@pytest.mark.req("R20")
def test_parts_arrive_in_any_order(tmp_path: Path) -> None:
    archive = pack({"main.py": b"x = 1\n", "pkg/noise.bin": LARGE}, "zip")

    async def work(desk: Desk) -> None:
        parts = archive.parts()
        assert len(parts) == 3
        apply(desk, parts[2], parts[0], parts[2], parts[1])
        path = await desk.store.acquire(archive.code("main:run"))
        assert (path / "pkg/noise.bin").read_bytes() == LARGE
        assert (path / "main.py").stat().st_mode & 0o777 == 0o644
        assert (path / "pkg").stat().st_mode & 0o777 == 0o755
        desk.store.release(archive.source_hash)

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_what_is_incomplete_says_which_part_is_missing(tmp_path: Path) -> None:
    archive = pack({"main.py": b"", "noise.bin": LARGE}, "zip")

    async def work(desk: Desk) -> None:
        first, _, last = archive.parts()
        with pytest.raises(LookupError, match="part 1 of 3 was not published; register"):
            await desk.store.acquire(archive.code("main:run"))
        apply(desk, first, last)
        with pytest.raises(LookupError, match="part 2 of 3 was not published"):
            await desk.store.acquire(archive.code("main:run"))

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_a_source_that_was_removed_is_not_there(tmp_path: Path) -> None:
    archive = source("a")

    async def work(desk: Desk) -> None:
        apply(desk, *archive.parts())
        desk.store.apply(desk.topic.append(f"{archive.source_hash}/0", b""))
        with pytest.raises(LookupError, match="part 1 of 1"):
            await desk.store.acquire(archive.code("main:run"))

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_whatever_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    good, bad = source("good"), source("bad")
    forged = SourcePart(source_hash=good.source_hash, part=0, parts=1, data=bad.data)
    noise = SourcePart(source_hash=good.source_hash, part=0, parts=1, data=b"no zip")
    other = SourcePart(source_hash=bad.source_hash, part=0, parts=1, data=good.data)
    parts = SourcePart(source_hash=good.source_hash, part=0, parts=2, data=good.data)

    async def work(desk: Desk) -> None:
        key = f"{good.source_hash}/0"
        for record, says in (
            (desk.topic.part(forged), "has another one"),
            (desk.topic.part(noise), "not a readable zip"),
            (desk.topic.part(other, key), "says that it is"),
            (desk.topic.part(parts), "says that it is"),
            (desk.topic.append(key, b"no record"), good.source_hash),
        ):
            desk.store.apply(record)
            with pytest.raises(LookupError, match=says):
                await desk.store.acquire(good.code("main:run"))
        apply(desk, *good.parts())
        assert (await desk.store.acquire(good.code("main:run"))).is_dir()

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_strange_keys_are_buried(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for key in ("", "x/0", "0" * 32, "0" * 32 + "/100", "0" * 32 + "/-1", "A" * 32 + "/0"):
            desk.store.apply(desk.topic.append(key, b"x"))
        await until(lambda: len(desk.service.published) == 6)
        assert {record.topic.name for record in desk.service.published} == {"dead-letters"}
        nonsense = CodeSource(source_hash="0" * 32, origin="zip", parts=1000)
        with pytest.raises(LookupError, match="1000 parts cannot be right"):
            await desk.store.acquire(nonsense)

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_a_broker_that_does_not_answer_is_no_fault_of_the_agent(tmp_path: Path) -> None:
    archive = source("a")

    async def work(desk: Desk) -> None:
        apply(desk, *archive.parts())

        def fetch(_: Any) -> list[Incoming]:
            raise BusUnavailable("away")

        desk.store._fetch = fetch
        with pytest.raises(LookupError, match="away"):
            await desk.store.acquire(archive.code("main:run"))
        desk.store._fetch = desk.topic.fetch
        await desk.store.acquire(archive.code("main:run"))

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_what_many_ask_for_at_once_is_fetched_once(tmp_path: Path) -> None:
    archive = source("a")
    fetched = []

    async def work(desk: Desk) -> None:
        apply(desk, *archive.parts())

        def fetch(places: Any) -> list[Incoming]:
            fetched.append(1)
            return desk.topic.fetch(places)

        desk.store._fetch = fetch
        code = archive.code("main:run")
        quitter = asyncio.create_task(desk.store.acquire(code))
        asking = [asyncio.create_task(desk.store.acquire(code)) for _ in range(5)]
        await asyncio.sleep(0)
        quitter.cancel()
        assert len(set(await asyncio.gather(*asking))) == 1
        assert len(fetched) == 1

    with_desk(tmp_path, work)


@pytest.mark.req("R20")
def test_the_disk_holds_no_more_than_it_may_and_never_drops_what_is_held(tmp_path: Path) -> None:
    archives = [source(str(number), 1000) for number in range(6)]

    async def work(desk: Desk) -> None:
        for archive in archives:
            apply(desk, *archive.parts())
        held = await desk.store.acquire(archives[0].code("main:run"))
        for archive in archives[1:]:
            await desk.store.acquire(archive.code("main:run"))
            desk.store.release(archive.source_hash)
            kept = [path for path in desk.cache.root.iterdir() if path.is_dir()]
            assert held in kept
            assert len(kept) <= 3
        again = await desk.store.acquire(archives[1].code("main:run"))
        assert (again / "main.py").read_bytes().startswith(b"# 1\n")

    with_desk(tmp_path, work, cache_bytes=3100)


@pytest.mark.req("R20")
def test_what_a_process_that_died_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    living = SourceCache(tmp_path, 10_000)
    died = SourceCache(tmp_path, 10_000)
    died.put("0" * 32, {"main.py": b"x"})
    died._lock_file.close()
    following = SourceCache(tmp_path, 10_000)
    assert not died.root.exists()
    assert living.root.is_dir()
    following.close()
    living.close()
    assert list(tmp_path.iterdir()) == []
