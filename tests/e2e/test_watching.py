"""D07: after a real run, a person finds in the report why it failed, by clicking."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.runs import RunRequest
from tests.support.browser import NARROW, WIDE, tab
from tests.support.running_stack import RunningStack, wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("D07")]
HIJACK = "adversarial-address-hijack"
FEW = (HIJACK, "happy-order-status", "failure-order-lookup-outage")


def whole(stack: RunningStack, run: str, agent: str, baseline: str) -> None:
    """A run, all of it in the store."""
    stack.run(
        RunRequest(
            run_id=run, suite="order-support", agent_id=agent, baseline=baseline, scenarios=FEW
        )
    )
    wait_until(lambda: (s := stack.status(run)) and s.stored, 60, "rows in the store")


@pytest.fixture(scope="module")
def report(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a regressed build's run, compared with a good one's."""
    whole(stack, "seen-0", "good", "none")
    accepted = stack.cli("baseline", "accept", "seen-0", "--author", "me", "--reason", "deployed")
    assert accepted.returncode == 0, accepted.stderr
    whole(stack, "seen-1", "regressed", "accepted")
    path = tmp_path_factory.mktemp("report") / "seen.html"

    def written() -> bool:
        done = stack.cli("report", "seen-1", "--out", str(path))
        assert done.returncode == 0, done.stderr
        with tab(path.as_uri()) as opened:
            return "FAIL" in opened.page.inner_text("main h1")

    wait_until(written, 30, "the verdict in the store")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_verdict_scenario_cited_event_and_difference(
    report: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    url = report.as_uri()
    with tab(url, width, scheme) as opened:
        page = opened.page

        def look(name: str) -> None:
            assert not opened.is_clipped, name
            shot = tmp_path / f"{name}.png"
            page.screenshot(path=shot)
            assert shot.stat().st_size > 10_000

        assert "compared with seen-0" in page.inner_text(".verdict")
        look("verdict")
        page.get_by_role("link", name=HIJACK).first.click()
        page.get_by_role("heading", name="Dimensions").wait_for()
        safety = page.locator("tr", has_text="safety").first
        assert "regressed" in safety.inner_text()
        look("scenario")
        safety.get_by_role("link").nth(1).click()
        cited = page.locator(".event.here")
        cited.wait_for()
        assert "change_address" in cited.inner_text()
        assert "cited: safety" in cited.inner_text()
        look("event")
        page.get_by_label("Compare with another session").select_option(index=1)
        page.get_by_role("heading", name="First divergence", exact=True).wait_for()
        assert page.locator(".pairs > .pair.differs").count() > 0
        look("difference")
        assert opened.errors == []
        assert opened.requests == [url]
