"""The reference agents of tests/support/agents as processes, and what each needs to run.

with reference_agent("go", tmp_path) as agent:
    agent.url  # its endpoint; its auth header is Authorization: `agent.auth`
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lanes import require_lane

FOLDER = Path(__file__).parent / "agents"
AGENTS = ("python", "node", "go", "shell")
TOKEN = "reference-agent-token-canary"
TOOL_SCHEMA = (
    '{"type": "object", "properties": {"order_id": {"type": "string"}}, '
    '"required": ["order_id"], "additionalProperties": false}'
)
_NEEDS = {"python": (), "node": ("node",), "go": ("go",), "shell": ("sh", "curl", "jq")}
_TSC = Path(__file__).resolve().parents[2] / ".cache/typescript/node_modules/.bin/tsc"
_START_S = 30.0


@dataclass(frozen=True, slots=True)
class ReferenceAgent:
    """One that is up."""

    url: str
    auth: str = field(default=f"Bearer {TOKEN}", repr=False)


def require_language(language: str) -> None:
    """Skip, or in CI fail, where a language's means are missing."""
    missing = [command for command in _NEEDS[language] if shutil.which(command) is None]
    if language == "node" and not _TSC.exists():
        missing.append("a TypeScript compiler (make typescript)")
    require_lane(language, not missing, f"not installed: {', '.join(missing)}")


def built(language: str, program: str, folder: Path) -> list[str]:
    """The command that runs a program of a language; Go and TypeScript are compiled into `folder`.

    Offline: the programs use nothing but standard libraries.
    """
    require_language(language)
    if language == "python":
        return [sys.executable, str(FOLDER / "python" / f"{program}.py")]
    if language == "node":
        script = folder / f"{program}.mjs"
        if not script.exists():
            types = str(_TSC.parents[1] / "@types")
            command = [str(_TSC), "-p", ".", "--typeRoots", types, "--outDir", str(folder)]
            subprocess.run(command, cwd=FOLDER / "node", check=True, timeout=240)
        return ["node", str(script)]
    if language == "shell":
        return [sys.executable, str(FOLDER / "shell" / "server.py")]
    target = folder / f"go-{program}"
    if not target.exists():
        environ = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
        subprocess.run(
            ["go", "build", "-o", str(target), f"./{program}"],
            cwd=FOLDER / "go", env=environ, check=True, timeout=240,
        )  # fmt: skip
    return [str(target)]


@contextmanager
def reference_agent(
    language: str, folder: Path, token: str = TOKEN, command: list[str] | None = None
) -> Iterator[ReferenceAgent]:
    """An agent in a process of its own until the block ends. `command`: another one, run alike."""
    process = subprocess.Popen(
        command or built(language, "agent", folder),
        env={**os.environ, "AGENT_TOKEN": token, "PORT": "0"},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(_START_S), f"the {language} agent did not start"
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://"), f"the {language} agent ended: {process.poll()}"
        yield ReferenceAgent(url, f"Bearer {token}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
