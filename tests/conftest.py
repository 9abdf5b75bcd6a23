"""`pytest --req-report`: which requirement is proven by which tests."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair: nothing here is a timed assertion.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--req-report", action="store_true", help="print the tests that prove each requirement"
    )


_proofs: dict[str, set[str]] = defaultdict(set)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("req"):
            for requirement in marker.args:
                _proofs[requirement].add(item.nodeid.partition("[")[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.getoption("--req-report"):
        return
    terminalreporter.section("requirements and the tests that prove them")
    for requirement in sorted(_proofs, key=lambda name: (name[0], int(name[1:]))):
        files = sorted({test.partition("::")[0] for test in _proofs[requirement]})
        count = len(_proofs[requirement])
        terminalreporter.write_line(f"{requirement}  {count:3d} tests  {', '.join(files)}")
