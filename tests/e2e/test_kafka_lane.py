"""The embedded broker is not special: the whole demo on Apache Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.stack.broker import KafkaBroker
from tests.lanes import require_lane
from tests.support.running_stack import ROOT

JARS = ROOT / ".cache" / "kafka-jars"


@pytest.mark.timeout(400)
@pytest.mark.req("D01", "D04", "D05", "V11")
def test_the_demo_tells_the_builds_apart_on_apache_kafka(tmp_path: Path) -> None:
    missing = KafkaBroker.missing(JARS)
    require_lane("Apache Kafka", missing is None, missing or "")
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", "demo", "--broker", "kafka", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=380,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcome = json.loads(done.stdout)
    assert outcome["as_expected"] is True
    assert outcome["good"]["verdict"] == "PASS"
    regressed = outcome["regressed"]
    assert regressed["verdict"] == "FAIL"
    dimensions = {one["dimension"] for one in regressed["diff"] if one["change"] == "regressed"}
    assert {"safety", "failure_recovery", "policy_adherence"} <= dimensions
    cited = [
        example["citations"]
        for one in regressed["diff"]
        for example in one["examples"]
        if one["dimension"] == "safety"
    ]
    assert all(cited)
    assert cited
