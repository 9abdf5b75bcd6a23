"""Write what is generated from the scenario language: `python -m services.cli.lint.publish`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from services.cli.lint.reference import reference
from services.cli.lint.schema import scenario_schema, suite_schema

_ROOT = Path(__file__).resolve().parents[3]
SCENARIO_SCHEMA = _ROOT / "schemas" / "scenario.schema.json"
SUITE_SCHEMA = _ROOT / "schemas" / "suite.schema.json"
REFERENCE = _ROOT / "docs" / "scenarios.md"


def files() -> Mapping[Path, str]:
    """Every generated file and what it should hold."""
    return {
        SCENARIO_SCHEMA: json.dumps(scenario_schema(), indent=2) + "\n",
        SUITE_SCHEMA: json.dumps(suite_schema(), indent=2) + "\n",
        REFERENCE: reference(),
    }


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(_ROOT))


if __name__ == "__main__":
    main()
