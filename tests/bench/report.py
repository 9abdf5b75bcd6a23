"""How long the report's page takes to open, and to move about in, as a run grows.

    python -m tests.bench.report

Prints JSON: for each size the file's bytes and, in milliseconds (medians of `--repeat`), until the
first view stands, until the first session of the list stands, and the longest task of the page's
main thread meanwhile. Needs Chromium (`make chromium`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.support import report_pages as pages
from tests.support.browser import tab

_LONGEST = """() => new Promise(done => {
  const seen = [0];
  new PerformanceObserver(list => seen.push(...list.getEntries().map(one => one.duration)))
    .observe({type: "longtask", buffered: true});
  setTimeout(() => done(Math.max(...seen)), 100);
})"""


def page_of(path: Path, sessions: int, turns: int) -> str:
    """The URL of a page of so many sessions, each of so many turns of three events."""
    index = pages.index([pages.session(n, passed=n % 10 > 0) for n in range(sessions)])
    detail = {"events": pages.exchange(turns), "scores": [pages.score("safety", True, "a1")]}
    return pages.write(path, index, ((one["session_id"], detail) for one in index["sessions"]))


def once(url: str) -> dict[str, float]:
    """One opening of the page."""
    with tab(url) as opened:
        page = opened.page
        first = page.evaluate("performance.now()")
        page.evaluate("location.hash = '#/sessions'")
        page.wait_for_selector("tbody tr a")
        before = page.evaluate("performance.now()")
        page.locator("tbody tr a").first.click()
        page.wait_for_selector(".event")
        after = page.evaluate("performance.now()")
        longest = page.evaluate(_LONGEST)
        assert opened.errors == []
        return {"first_view_ms": first, "session_ms": after - before, "longest_task_ms": longest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for sessions, turns in ((100, 10), (1_000, 10), (1_000, 33), (1, 33_334)):
            path = Path(folder) / "page.html"
            url = page_of(path, sessions, turns)
            times = [once(url) for _ in range(repeat)]
            medians = {name: round(statistics.median(t[name] for t in times)) for name in times[0]}
            events = sessions * turns * 3
            size = path.stat().st_size
            found.append({"sessions": sessions, "events": events, "bytes": size, **medians})
    print(json.dumps({"pages": found}, indent=2))


if __name__ == "__main__":
    main()
