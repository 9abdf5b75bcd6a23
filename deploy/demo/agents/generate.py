"""Writes the registrations of the demo agent's builds, `good.json` and `regressed.json`.

`python -m deploy.demo.agents.generate` after a change of the demo's world; a test fails when they
are out of date.
"""

from __future__ import annotations

import json
from pathlib import Path

from deploy.demo.builds import BUILDS
from deploy.demo.register import AGENT_NAME, agent_registration
from schemas.agent_document import document_of

FOLDER = Path(__file__).resolve().parent
ENDPOINT = "http://127.0.0.1:8700/dispatch"


def files() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    found = {}
    for build in BUILDS:
        agent = agent_registration(f"{AGENT_NAME}-{build}", AGENT_NAME, ENDPOINT, build)
        found[FOLDER / f"{build}.json"] = json.dumps(document_of(agent), indent=2) + "\n"
    return found


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
