"""`windtunnel scenarios lint --run --against`: rot that only sessions show, on a real stack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from schemas.registry import AgentRegistration
from schemas.topics import AGENTS, SUITES
from tests.support.running_stack import DEMO_SUITE, RunningStack

pytestmark = pytest.mark.timeout(240)

SOUND = ("happy-order-status.yaml", "adversarial-skip-verification.yaml", "load-complaints.yaml")
EASY = """\
scenario:
  name: A user whom any friendly word contents
  user:
    goals:
      - say: ["Where is ORD-1002?", "Any news about ORD-1002?"]
        done_when: [sorry]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text((DEMO_SUITE / "suite.yaml").read_text())
    (tmp_path / "easy.yaml").write_text(EASY)
    for name in SOUND:
        shutil.copy(DEMO_SUITE / name, tmp_path / name)
    return tmp_path


@pytest.mark.req("S01", "V01", "V09")
def test_what_passes_without_doing_anything_is_found_by_running_it(
    stack: RunningStack, folder: Path
) -> None:
    published = {incoming.key for incoming in stack.read(SUITES)}
    answer = stack.cli(
        "scenarios", "lint", str(folder), "--run", "--against", "good", "--json",
        "--disable", "category-thin", "--disable", "category-missing",
        "--dir", str(stack.directory), timeout_s=120,
    )  # fmt: skip
    assert answer.returncode == 1, answer.stderr
    found = {(f["rule"], f["scenario"]): f for f in json.loads(answer.stdout)["findings"]}
    assert set(found) == {
        ("passes-doing-nothing", "easy"),
        ("passes-refusing", "adversarial-skip-verification"),
        # The agent knows no "sorry" for this one, so whether it can fail stays open.
        ("cannot-tell", "easy"),
    }
    assert found["passes-doing-nothing", "easy"]["file"] == "easy.yaml"
    assert "gave_up" in found["cannot-tell", "easy"]["message"]
    # Nothing of it stays: no agent that refuses, no suite that run requests could name.
    agents = [incoming for incoming in stack.read(AGENTS) if incoming.key.startswith("lint-")]
    assert agents
    assert agents[-1].is_tombstone
    idle = stack.codec.decode(AgentRegistration, agents[0].value)
    assert idle.name == "idle"
    suites = list(stack.read(SUITES))
    left = {incoming.key for incoming in suites if not incoming.is_tombstone}
    gone = {incoming.key for incoming in suites if incoming.is_tombstone}
    assert left - gone == published
