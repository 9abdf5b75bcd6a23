"""The README stays true: every command in it is run, in its order.

`make` targets are what `.ci/run` consists of; here it is checked that they are in it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.running_stack import ROOT, wait_until

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.strip().splitlines()]
KAFKA_LANE = ".venv/bin/windtunnel demo --broker kafka"


def test_make_targets_of_the_readme_are_run_by_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = [word for c in COMMANDS if c.startswith("make ") for word in c.split()[1:]]
    assert {"demo", "test", "kafka-jars"} <= set(targets)
    for target in targets:
        lanes = re.search(r"^lanes: (.*?) ##", makefile, re.MULTILINE)
        assert lanes is not None
        assert f"make {target}" in ci or target in lanes[1].split(), target


def test_files_the_readme_links_to_exist() -> None:
    for path in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / path).exists(), path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project as the README sees it, with a `.windtunnel` of its own."""
    for entry in ROOT.iterdir():
        if entry.name not in (".windtunnel", ".git"):
            (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.req("D04", "D05", "D06", "R26")
def test_every_command_of_the_readme_works_in_its_order(checkout: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "160"}
    background: list[subprocess.Popen[bytes]] = []
    output = checkout / "background.out"
    ran = 0
    try:
        for command in COMMANDS:
            if command.startswith("make ") or command == KAFKA_LANE:
                continue
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environ[name] = value.strip('"')
                continue
            if " up " in command or "deploy.example.agent" in command:
                with output.open("ab") as out:
                    background.append(
                        subprocess.Popen(
                            ["bash", "-c", f"exec env {command}"], cwd=checkout, env=environ,
                            stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                        )
                    )  # fmt: skip
                if " up " in command:
                    wait_until(
                        lambda: b"broker at" in output.read_bytes(), 90, "up", output.read_text
                    )
                    found = re.search(r"broker at (\S+)", output.read_text())
                    assert found is not None
                    environ["BOOTSTRAP"] = found[1]
                else:
                    time.sleep(2)
                continue
            done = subprocess.run(
                ["bash", "-c", command], cwd=checkout, env=environ, capture_output=True,
                text=True, timeout=150, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            ran += 1
            if " sql " in command:
                assert re.search("first|opening-hours|get_opening_hours", done.stdout), done.stdout
    finally:
        for process in reversed(background):
            process.send_signal(signal.SIGINT)
            process.wait(40)
    assert ran >= 10
