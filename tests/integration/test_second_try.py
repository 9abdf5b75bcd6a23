"""A test of real processes that fails by chance gets a second try, which must end as well."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.live import ROOT

HANGS = """
import time

import pytest

tries = []

@pytest.mark.timeout(1)
def test_it():
    tries.append(1)
    time.sleep(300 if len(tries) == 2 else 0)
    assert len(tries) == 2
"""


def test_a_second_try_is_bounded_too(tmp_path: Path) -> None:
    test = tmp_path / "tests" / "e2e" / "test_chance.py"
    test.parent.mkdir(parents=True)
    test.write_text(HANGS)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rR", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "Timeout (>1.0s)" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 rerun in" in done.stdout
