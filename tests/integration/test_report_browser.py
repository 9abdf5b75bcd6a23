"""The report's page in a browser: made-up runs, hostile, long and many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import report_pages as pages
from tests.support.browser import NARROW, WIDE, tab

pytestmark = [pytest.mark.timeout(180), pytest.mark.req("D07")]


def hostile_details() -> tuple[str, list[object]]:
    """A session of 5,000 events, every text of which would do harm as anything but text."""
    text = f"{pages.HOSTILE} {pages.CONTROLS} {pages.RIGHT_TO_LEFT}"
    events = pages.exchange(1_665, user=text, agent=text)
    events += [
        pages.call(9_001, tool=text, arguments=text, response="x" * 1_000_000 + pages.HOSTILE,
                   response_is_text=True, actor=text, error_code=text, state_patch=text,
                   injection={"rule_id": text, "kind": text, "occurrence": 1, "detail": text}),
        pages.event("x1", "trace", 1, type="handoff", payload=text),
        pages.event("x2", "trace", 1, type=text, payload=text),
        pages.event("q1", text, 1, anything=text),
        pages.event("end", "session_ended", 1, reason=text, detail=text),
    ]  # fmt: skip
    return text, events


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_hostile_trajectories_stay_text(tmp_path: Path, width: int, scheme: str) -> None:
    text, events = hostile_details()
    assert len(events) == 5_000
    session = pages.session(
        1, passed=False, scenario_id=text, persona=text, end_reason=text, end_detail=text
    )
    index = pages.index([session], run_id=text)
    reasons = [f"fail: code: {text} session {session['session_id']} at t9001: {text}"]
    index["verdict"] = {
        "verdict": "FAIL", "reasons": reasons, "diff": [], "baseline_run_id": "", "decided_at_ms": 1
    }  # fmt: skip
    scores = [pages.score(text, False, "t9001", "u1", reason=text)]
    details = {session["session_id"]: {"events": events, "scores": scores}}
    url = pages.write(tmp_path / "hostile.html", index, details)
    with tab(url, width, scheme) as opened:
        page = opened.page
        page.get_by_role("link", name="t9001").first.click()
        here = page.locator("#step-t9001.here")
        here.wait_for()
        for section in here.locator("summary").all():
            section.click()
        rest = here.get_by_role("button", name="show all 1,0").first
        rest.click()
        assert page.evaluate("document.querySelector('#step-t9001').textContent.length") > 1_000_000
        shown = here.inner_text()
        assert "</script><script>window.broken = 1" in shown
        assert "⟨U+202E⟩" in shown
        assert "⟨U+001B⟩" in shown
        page.get_by_role("button", name="Show earlier events").click()
        for address in ("#/sessions", "#/", f"#/session/{session['session_id']}"):
            page.goto(f"{url}{address}")
            page.wait_for_selector("main h1")
            assert not opened.is_clipped, address
        # What is far down is made when one gets there.
        assert page.locator(".event").count() < 400
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        opened.wait_for("document.querySelectorAll('.event').length > 130")
        assert page.evaluate("window.broken") is None
        assert opened.errors == []
        assert opened.requests == [url]


def test_a_trajectory_is_filtered_searched_and_walked_by_keys(tmp_path: Path) -> None:
    first, second = pages.session(1), pages.session(2, passed=False)
    events = pages.exchange(3)
    events.insert(4, pages.call(77, 2, tool="refund", response='{"refunded": "needle"}',
                                injection={"rule_id": "r1", "kind": "outage", "occurrence": 1,
                                           "detail": "503"}))  # fmt: skip
    details = {
        first["session_id"]: {"events": pages.exchange(3), "scores": []},
        second["session_id"]: {"events": events, "scores": [pages.score("safety", False, "t77")]},
    }
    url = pages.write(tmp_path / "keys.html", pages.index([first, second]), details)
    with tab(url) as opened:
        page = opened.page
        page.get_by_role("link", name="Sessions", exact=True).click()
        page.get_by_label("any outcome").select_option("failed")
        opened.wait_for_count("tbody tr", 1)
        page.get_by_label("any outcome").select_option("")
        page.keyboard.press("Escape")
        page.get_by_placeholder("Filter sessions").fill("needle")
        opened.wait_for_count("tbody tr", 0)
        page.get_by_role("button", name="Search inside trajectories").click()
        opened.wait_for_count("tbody tr", 1)
        page.locator("tbody a").first.click()
        page.wait_for_selector(".event")
        opened.wait_for_count(".event.injected", 1)
        page.get_by_label("Which events").select_option("cited by the judge")
        opened.wait_for("document.querySelector('.event').innerText.startsWith('t77')")
        page.get_by_label("Which events").select_option("everything")
        page.get_by_placeholder("Search this trajectory").fill("needle")
        opened.wait_for_count(".event", 1)
        page.get_by_placeholder("Search this trajectory").fill("")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("j")
        opened.wait_for("document.activeElement.dataset.step === 't1'")
        page.keyboard.press("?")
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        page.keyboard.press("[")
        opened.wait_for(f"location.hash.includes('{first['session_id']}')")
        assert opened.errors == []


def test_two_sessions_are_compared_from_where_they_part(tmp_path: Path) -> None:
    before, now = pages.session(1, baseline=True), pages.session(1, passed=False)
    changed = pages.exchange(4)
    changed[4] = pages.call(2, 2, arguments='{"id": 5}')
    details = {
        before["session_id"]: {"events": pages.exchange(4), "scores": []},
        now["session_id"]: {"events": changed, "scores": []},
    }
    url = pages.write(tmp_path / "diff.html", pages.index([now, before]), details)
    with tab(f"{url}#/session/{now['session_id']}") as opened:
        page = opened.page
        page.get_by_label("Compare with another session").select_option(index=1)
        page.get_by_role("heading", name="First divergence", exact=True).wait_for()
        assert "4 steps are the same" in page.inner_text("main")
        pairs = page.locator(".pairs > .pair")
        assert '{"id":4}' in pairs.first.inner_text()
        assert '{"id":5}' in pairs.first.inner_text()
        assert pairs.count() == 8
        opened.wait_for_count(".pairs > .pair.differs", 1)
        assert opened.errors == []


def test_a_page_of_a_thousand_sessions_shows_its_first_rows_at_once(tmp_path: Path) -> None:
    sessions = [pages.session(number, passed=number % 10 > 0) for number in range(1_000)]
    detail = {"events": pages.exchange(33), "scores": [pages.score("safety", True, "a1")]}
    details = ((one["session_id"], detail) for one in sessions)
    url = pages.write(tmp_path / "many.html", pages.index(sessions), details)
    with tab(f"{url}#/sessions") as opened:
        page = opened.page
        opened.wait_for_count("tbody tr", 201)
        page.get_by_role("button", name="Show 200 more").click()
        opened.wait_for_count("tbody tr", 401)
        page.locator("tbody tr a").nth(2).click()
        page.wait_for_selector(".event")
        assert opened.errors == []
        assert opened.requests == [url]
