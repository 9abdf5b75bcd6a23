"""Debian's Chromium, driven by Playwright: the lane of the tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Page, sync_playwright

from tests.lanes import require_lane
from tests.support.running_stack import wait_until

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = 1600, 390


@dataclass
class Tab:
    """A page, with everything that it complained of and asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def is_clipped(self) -> bool:
        """Whether one has to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def wait_for(self, expression: str) -> None:
        """Wait until the expression is true. Playwright's own way polls with `eval` in the page,
        which the page's content security policy forbids.
        """
        wait_until(lambda: self.page.evaluate(expression), 60, expression)

    def wait_for_count(self, selector: str, count: int) -> None:
        """Wait until so many elements match."""
        self.wait_for(f"document.querySelectorAll({selector!r}).length === {count}")


@contextmanager
def tab(url: str, width: int = WIDE, scheme: str = "light") -> Iterator[Tab]:
    """The URL in a new browser; what its page says and asks for is written down."""
    require_lane("chromium", CHROMIUM is not None, "no chromium here: `make chromium` installs it")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            opened = Tab(page)
            page.on("console", lambda said: opened.errors.append(f"{said.type}: {said.text}"))
            page.on("pageerror", lambda error: opened.errors.append(str(error)))
            page.on("dialog", lambda dialog: opened.errors.append(f"dialog {dialog.message}"))
            page.on("request", lambda request: opened.requests.append(request.url))
            page.goto(url)
            page.wait_for_selector("main h1", timeout=60_000)
            yield opened
        finally:
            browser.close()
