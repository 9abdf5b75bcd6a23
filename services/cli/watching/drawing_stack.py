"""All runs of a stack and its services, drawn for a terminal. Pure, as `drawing` is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from services.cli.watching.drawing import (
    bar,
    count,
    failures,
    gap,
    grid,
    line,
    shortened,
    state,
)
from services.cli.watching.figures import RunFigures
from services.cli.watching.health import ServiceHealth
from services.cli.watching.runs import is_over
from services.cli.watching.telling import duration, rate

_LEAST_NAME, _LEAST_BAR = 16, 6
_NUMBERS = 13 + 9 + 6 + 4 + 6 + 10  # state, done, active, s/s, failed, left


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of a stack at a moment."""

    at_ms: int
    bootstrap: str
    runs: Sequence[RunFigures]
    has_more: bool
    """There are more runs than are told apart."""
    services: Sequence[ServiceHealth]
    """Empty where it is not known which there are."""
    note: str = ""
    """What is wrong with the broker."""

    @property
    def active(self) -> int:
        return sum(not is_over(run) for run in self.runs)


def draw_stack(picture: Picture, width: int, height: int) -> Group:
    """Runs first, then failures, then services. Never higher than `height`."""
    lines: list[RenderableType] = [line(_headline(picture), "bold")]
    if picture.note:
        lines.append(line(picture.note, "bold red"))
    wants_table = height >= 24 and bool(picture.services)
    below = len(picture.services) + 2 if wants_table else bool(picture.services)
    room = height - len(lines) - below
    if picture.runs and room >= 2:
        drawn, used = _runs(picture, width, room)
        lines += drawn
        room -= used
    latest = sorted((one for run in picture.runs for one in run.failures), reverse=True)
    if latest and room >= 3:
        lines.append(Text())
        lines += failures(latest, picture.at_ms, width, room - 1)
    if wants_table:
        lines += [Text(), _services(picture.services, width)]
    elif picture.services and height > len(lines):
        lines.append(line(services_line(picture.services)))
    return Group(*lines[:height] if height < 3 else lines)


def services_line(services: Sequence[ServiceHealth]) -> str:
    """The services in a line: how many are ready, which are not, and what is left undone."""
    ready = sum(one.ready for one in services)
    parts = [f"services: {ready}/{sum(one.replicas for one in services)} ready"]
    parts += [f"{s.service} {s.ready}/{s.replicas}" for s in services if s.ready < s.replicas]
    for name, found in (
        ("waiting for admission", [one.waiting for one in services]),
        ("lag", [one.lag for one in services]),
        ("dead letters", [one.dead_letters for one in services]),
    ):
        known = [number for number in found if number is not None]
        if known:
            parts.append(f"{name} {sum(known)}")
    return ", ".join(parts)


def _headline(picture: Picture) -> str:
    runs = picture.runs
    more = "+" if picture.has_more else ""
    sessions = sum(run.active for run in runs)
    parts = [f"windtunnel top: {picture.active}{more} runs, {sessions} sessions active"]
    for name, rates in (
        ("sessions/s", [run.sessions_per_s for run in runs]),
        ("turns/s", [run.turns_per_s for run in runs]),
    ):
        known = [one for one in rates if one is not None]
        if known:
            parts.append(f"{rate(sum(known))} {name}")
    return f"{', '.join(parts)}  {picture.bootstrap}"


def _runs(picture: Picture, width: int, room: int) -> tuple[list[RenderableType], int]:
    """A table of the runs, and how many lines it takes."""
    runs = picture.runs
    shown = runs if len(runs) < room else runs[: room - 2]
    spare = width - _NUMBERS - 7 * gap(width) - _LEAST_NAME - _LEAST_BAR
    longest = max(len(run.run_id) for run in runs)
    name = min(longest, _LEAST_NAME + max(0, spare * 2 // 3))
    wide = max(_LEAST_BAR, min(40, spare + _LEAST_NAME + _LEAST_BAR - name))
    table = grid(
        [
            ("run", "left"), ("state", "left"), ("", "left"), ("ended", "right"),
            ("active", "right"), ("s/s", "right"), ("failed", "right"), ("left", "right"),
        ],
        width,
    )  # fmt: skip
    for run in shown:
        table.add_row(
            Text(shortened(run.run_id, name)),
            state(run),
            bar(run.ended, run.planned, wide),
            Text(f"{run.ended}/{run.planned}"),
            count(run.active),
            Text(rate(run.sessions_per_s)),
            _failed(run),
            Text("" if is_over(run) else duration(run.left_s)),
        )
    drawn: list[RenderableType] = [table]
    if len(shown) < len(runs):
        drawn.append(line(f"and {len(runs) - len(shown)} more runs", "dim"))
    return drawn, 1 + len(shown) + (len(shown) < len(runs))


def _failed(run: RunFigures) -> Text:
    """Failed sessions; with a plus where outcomes were not read, for reading began later."""
    text = count(run.failed, "bold red")
    if run.outcomes_missing > 0:
        text.append("+", "dim")
    return text


def _services(services: Sequence[ServiceHealth], width: int) -> RenderableType:
    table = grid(
        [
            ("service", "left"), ("ready", "right"), ("sessions", "right"), ("waiting", "right"),
            ("lag", "right"), ("dead letters", "right"),
        ],
        width,
    )  # fmt: skip
    for one in services:
        table.add_row(
            Text(shortened(one.service, 20)),
            Text(f"{one.ready}/{one.replicas}", "" if one.ready == one.replicas else "bold red"),
            count(one.sessions),
            count(one.waiting),
            count(one.lag),
            count(one.dead_letters, "yellow"),
        )
    return table
