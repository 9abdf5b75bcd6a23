"""One stack for the tests that can share one; runs are told apart by their ids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.running_stack import RunningStack, running_stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        running.publish_suite()
        running.start_agent("good")
        running.start_agent("regressed")
        yield running
