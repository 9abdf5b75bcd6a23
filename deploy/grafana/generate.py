"""`python -m deploy.grafana.generate`: the dashboards' JSON, from the code in `boards`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.boards import cost, health, load, runs, scenarios, tools

BOARDS = (runs, scenarios, load, tools, cost, health)
FOLDER = Path(__file__).with_name("dashboards")


def documents() -> dict[str, str]:
    """The files, by name."""
    found = {}
    for module in BOARDS:
        made: Any = module.build().build()
        for number, panel in enumerate(made.panels, start=1):
            panel.id_val = number
        name = module.__name__.rpartition(".")[2]
        found[f"{name}.json"] = json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
    return found


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text)
        print(FOLDER.relative_to(Path.cwd()) / name)


if __name__ == "__main__":
    main()
