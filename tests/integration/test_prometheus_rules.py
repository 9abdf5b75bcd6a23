"""D07: configuration and rules as Prometheus itself reads them (Debian's promtool)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lanes import require_lane
from tests.support.live import ROOT

pytestmark = pytest.mark.req("D07")
PROMETHEUS = ROOT / "deploy" / "prometheus"


def promtool(*arguments: str, cwd: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    require_lane("prometheus", found is not None, "no promtool here: `make prometheus` installs it")
    return subprocess.run(
        [str(found), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_configuration_and_the_rules_are_valid() -> None:
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("rules found") == 2


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    tested = promtool("test", "rules", "tests/alerts.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_tests_of_the_rules_can_fail(tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    alerts = tmp_path / "prometheus" / "alerts.yml"
    alerts.write_text(alerts.read_text().replace("ratio5m > 0.05", "ratio5m > 0.3"))
    tested = promtool("test", "rules", "tests/alerts.yml", cwd=tmp_path / "prometheus")
    assert tested.returncode != 0
    assert "WindtunnelUnscored" in tested.stdout + tested.stderr
