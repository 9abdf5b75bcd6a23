"""The doctor's core: every check gets one finding, whatever its step does."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.doctor.catalogue import BY_ID, GROUPS
from services.cli.doctor.examination import examine, exit_code, in_thread
from services.cli.doctor.model import (
    Finding,
    Outcome,
    Settled,
    Step,
    Tell,
    failed,
    ok,
    skipped,
    warning,
)
from services.cli.doctor.telling import PAGE, as_document, page

pytestmark = pytest.mark.req("R24")

BEHAVIOURS = ("tells", "warns", "fails", "skips", "settles", "raises", "hangs", "silent", "twice")


def step(checks: tuple[str, ...], behaviour: str, needs: tuple[str, ...] = ()) -> Step[None]:
    async def run(_: None, tell: Tell) -> None:
        if behaviour == "settles":
            raise Settled(failed(checks[0], "settled", "mend"))
        if behaviour == "raises":
            raise RuntimeError("oh")
        if behaviour == "hangs":
            await asyncio.sleep(60)
        if behaviour == "silent":
            return
        for check in checks:
            tell(
                {
                    "tells": ok(check, "fine"),
                    "warns": warning(check, "hm", "mend"),
                    "fails": failed(check, "bad", "mend"),
                    "skips": skipped(check, "because"),
                    "twice": ok(check, "fine"),
                }[behaviour]
            )
        if behaviour == "twice":
            tell(failed(checks[0], "again", "mend"))

    return Step(checks, run, needs, timeout_s=0.02)


@given(st.lists(st.tuples(st.sampled_from(BEHAVIOURS), st.integers(1, 3), st.booleans())))
def test_every_check_gets_exactly_one_finding_in_order(
    plan: list[tuple[str, int, bool]],
) -> None:
    steps = []
    for number, (behaviour, count, is_dependent) in enumerate(plan):
        checks = tuple(f"{number}.{n}" for n in range(count))
        needs = (f"{number - 1}.0",) if number and is_dependent else ()
        steps.append(step(checks, behaviour, needs))
    told: list[Finding] = []
    findings = asyncio.run(examine(steps, None, told.append))
    assert findings == told
    assert [f.check for f in findings] == [check for one in steps for check in one.checks]
    by_check = {finding.check: finding for finding in findings}
    for number, (behaviour, _, is_dependent) in enumerate(plan):
        first = by_check[f"{number}.0"]
        if number and is_dependent:
            before = by_check[f"{number - 1}.0"].outcome
            if before in (Outcome.FAILED, Outcome.SKIPPED):
                assert first.outcome is Outcome.SKIPPED
                continue
        assert first.outcome is {
            "tells": Outcome.OK,
            "twice": Outcome.OK,
            "warns": Outcome.WARNING,
            "skips": Outcome.SKIPPED,
            "silent": Outcome.SKIPPED,
        }.get(behaviour, Outcome.FAILED)
    assert exit_code(findings) == any(f.outcome is Outcome.FAILED for f in findings)


def test_a_step_that_hangs_or_breaks_fails_and_the_next_one_follows() -> None:
    steps = [step(("a",), "hangs"), step(("b",), "raises"), step(("c",), "tells")]
    a, b, c = asyncio.run(examine(steps, None, lambda _: None))
    assert "took longer than 0.02 s" in a.detail
    assert (b.detail, b.outcome) == ("RuntimeError: oh", Outcome.FAILED)
    assert c.outcome is Outcome.OK


def test_blocking_work_does_not_hold_the_doctor_or_the_process() -> None:
    release = threading.Event()

    async def run(_: None, tell: Tell) -> None:
        await in_thread(lambda: release.wait(30))

    began = time.monotonic()
    findings = asyncio.run(examine([Step(("x",), run, timeout_s=0.05)], None, lambda _: None))
    assert findings[0].outcome is Outcome.FAILED
    # asyncio.run returned, though the thread is still at it.
    assert time.monotonic() - began < 20
    threads = [t for t in threading.enumerate() if t.name == "doctor"]
    assert threads
    assert all(thread.daemon for thread in threads)
    release.set()


def test_what_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    def work() -> Any:
        raise KeyError("x")

    async def main() -> None:
        with pytest.raises(KeyError):
            await in_thread(work)

    asyncio.run(main())


def test_the_page_is_what_the_checks_say() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m services.cli.doctor.telling"


def test_every_check_has_its_words() -> None:
    assert sum(map(len, GROUPS.values())) == len(BY_ID)
    for spec in BY_ID.values():
        assert spec.expected[0].islower() or spec.expected[0] in "`PJ", spec.id
        assert spec.mend.endswith("."), spec.id
        assert "|" not in spec.expected + spec.mend, spec.id


def test_as_a_document() -> None:
    findings = [ok("a", "fine"), failed("b", "bad", "mend", "more")]
    assert as_document(findings) == {
        "ok": False,
        "checks": [
            {"check": "a", "outcome": "ok", "detail": "fine", "mend": "", "lines": []},
            {"check": "b", "outcome": "failed", "detail": "bad", "mend": "mend", "lines": ["more"]},
        ],
    }
