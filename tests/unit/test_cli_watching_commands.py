"""D07: watching from the command line: mistakes in a call, and a display that must not matter."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.watching.display import RunDisplay
from tests.support.services import FixedClock
from tests.support.watched import NOW_MS, status

pytestmark = pytest.mark.req("D07")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_STORE", "WINDTUNNEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("top",), "no stack is running in .windtunnel: start one with `windtunnel up`"),
        (("top", "--once", "--json"), "no stack is running in .windtunnel"),
        (("run", "suite", "--agent", "a", "--watch"), "no stack is running in .windtunnel"),
        (("top", "--json"), "--json goes with --once"),
        (("top", "--interval", "0"), "--interval"),
        (("run", "suite", "--agent", "a", "--watch", "--no-wait"), "contradict each other"),
    ],
)
def test_mistakes_are_told_and_end_with_2(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def shown(console: Console | None, *ended: int) -> None:
    """A run's statuses on a display, as `gate wait` shows them."""

    async def show() -> None:
        async with RunDisplay("watched-1", clock=FixedClock(NOW_MS), console=console) as display:
            for number in ended:
                display.status(status(ended=number, categories={"happy": number}))
                await asyncio.sleep(0)  # as between two records

    asyncio.run(show())


def test_progress_without_a_terminal_is_said_once_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(None, 3, 3)
    said = capsys.readouterr()
    assert said.err.count("watched-1 running: 3/20 ended") == 1
    assert said.out == ""


def test_progress_on_a_terminal_is_a_panel_that_is_erased(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = io.StringIO()
    console = Console(
        file=terminal, force_terminal=True, width=80, height=24, color_system=None, markup=False
    )
    shown(console, 3, 3, 3)
    assert "3/20 ended" in terminal.getvalue()
    assert "\x1b[2K" in terminal.getvalue()
    assert capsys.readouterr() == ("", "")


class Unwilling(Console):
    """A terminal that has gone."""

    @property
    def size(self) -> object:  # type: ignore[override]
        raise OSError("no such terminal")


def test_a_display_that_fails_says_so_and_the_run_is_told_in_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(Unwilling(file=io.StringIO(), force_terminal=True), 3, 4)
    said = capsys.readouterr().err
    assert "the display has failed, the run goes on" in said
    assert "4/20 ended" in said
