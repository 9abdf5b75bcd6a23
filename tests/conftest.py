"""`pytest --req-report`: which requirement is proven by which tests."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import settings

# How long an example takes is the machine's affair: nothing here is a timed assertion.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--req-report", action="store_true", help="print the tests that prove each requirement"
    )


# These run against real brokers, databases and servers on a machine that others use too: such a
# test may fail once for what is not its subject. It gets a second try, which the summary shows;
# a test of pure code gets none.
REAL = frozenset({"contract", "e2e", "integration"})

_proofs: dict[str, set[str]] = defaultdict(set)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in REAL:
            item.add_marker(pytest.mark.flaky(reruns=1))
        for marker in item.iter_markers("req"):
            for requirement in marker.args:
                _proofs[requirement].add(item.nodeid.partition("[")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # pytest-timeout sets its clock once for a test, and stops it when a try has failed.
    if getattr(item, "execution_count", 1) > 1:
        settings = pytest_timeout._get_item_settings(item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.getoption("--req-report"):
        return
    terminalreporter.section("requirements and the tests that prove them")
    for requirement in sorted(_proofs, key=lambda name: (name[0], int(name[1:]))):
        files = sorted({test.partition("::")[0] for test in _proofs[requirement]})
        count = len(_proofs[requirement])
        terminalreporter.write_line(f"{requirement}  {count:3d} tests  {', '.join(files)}")
