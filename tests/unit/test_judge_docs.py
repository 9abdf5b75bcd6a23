"""docs/judging.md says what the judge does: every dimension, setting, default and figure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

import services.judge.evaluators.quality as quality
from schemas.scores import Dimension
from services.judge.calibration import ENOUGH_LABELS, ENOUGH_OF_EACH
from services.judge.calibration_labels import _Line
from services.judge.evaluators import GATES
from services.judge.service import JudgeSettings
from services.judge.transcript import TOTAL_CHARS
from services.judge.voting import Outcome

pytestmark = pytest.mark.req("V09", "S04")

PAGE = (Path(__file__).parents[2] / "docs" / "judging.md").read_text()
TOLD = " ".join(PAGE.split())


def row(name: str) -> str:
    """The line of a table that begins with this name."""
    found = re.search(rf"^\| `{re.escape(name)}`.*$", PAGE, re.MULTILINE)
    assert found, f"no row for {name}"
    return found[0]


def test_every_dimension_is_defined() -> None:
    for name in GATES:
        assert row(name).count("|") == 5
    for name in (*Dimension.QUALITY, Dimension.EVAL_UNAWARE, "criteria.1"):
        assert f"`{name}`" in PAGE
    for name, definition in quality.SCALES.items():
        assert f"**{name}**: {definition}." in TOLD


@pytest.mark.parametrize(
    "name",
    ["model_timeout_s", "model_concurrency", "samples", "agreement", "model_temperature", "batch"],
)
def test_every_setting_is_told_with_its_default(name: str) -> None:
    default = JudgeSettings.model_fields[f"judge_{name}"].default
    told = str(default).lower() if isinstance(default, bool) else f"{default:g}"
    cells = [cell.strip() for cell in row(f"WINDTUNNEL_JUDGE_{name.upper()}").split("|")]
    assert cells[2] == told


def test_figures_are_those_of_the_code() -> None:
    assert f"{TOTAL_CHARS:,} characters" in TOLD
    assert f"Fewer than {ENOUGH_LABELS} compared labels, or fewer than {ENOUGH_OF_EACH}" in TOLD
    assert row("WINDTUNNEL_JUDGE_QUALITY").split("|")[2].strip(" `") == ",".join(Dimension.QUALITY)
    assert set(get_args(Outcome)) == {"unanimous", "majority", "disagree", "no_verdict"}


def test_the_example_of_a_label_has_the_fields_that_are_read() -> None:
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found
    document = json.loads(found[1])
    with pytest.raises(ValidationError) as caught:
        _Line.model_validate(document)
    # The example's events are shortened, and nothing else of it is wrong.
    assert {error["loc"][0] for error in caught.value.errors()} == {"events"}
