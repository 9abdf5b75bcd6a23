"""Runs drawn for a terminal. Pure: figures and a size in, something that `rich` can print out.

Whatever comes from records goes through `line` or `printable`: no escape codes, and never markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from services.cli.escaping import printable
from services.cli.watching.figures import CategoryFigures, Failure, Known, RunFigures
from services.cli.watching.telling import duration, rate

_BAD, _GOOD, _DULL, _NOTE = "bold red", "green", "dim", "yellow"
_STATES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}
_NAME = 17  # as long as the longest category
_MOST_FAILURES = 10
_OUTCOMES = ("active", "passed", "failed", "unscored", "invalid")
_LEAST_BAR, _MOST_BAR = 8, 40
_WIDE = 120  # a failure fits into a line
_NUMBERS = 9 + 6 + 6 + 6 + 8 + 7  # the columns of a category, as wide as their headings


def draw_run(run: RunFigures, now_ms: int, width: int, height: int, note: str = "") -> Group:
    """One run: how far, by category, ended why, what failed last. Never higher than `height`."""
    head: list[RenderableType] = [_title(run), _paces(run)]
    if note:
        head.append(line(note, _NOTE))
    room = height - len(head)
    body: list[RenderableType] = []
    if room >= 2 and run.categories:
        body, used = _categories(run, width, room)
        room -= used
    if room >= 1 and run.reasons:
        body.append(_reasons(run))
        room -= 1
    if room >= 2 and run.failures:
        body += failures(run.failures, now_ms, width, room)
    return Group(*[*head, *body][:height] if height < len(head) else [*head, *body])


def failures(latest: Sequence[Failure], now_ms: int, width: int, room: int) -> list[RenderableType]:
    """As many of the latest failures as there is room for, below a heading. A line each; where
    that would cut the session's id, two.
    """
    lines: list[RenderableType] = [line("Latest failures", "bold")]
    for failure in latest[:_MOST_FAILURES]:
        ago = f"{duration(_ago_s(failure, now_ms)):>10} ago  "
        who = line(failure.scenario_id, _BAD)
        who.append(printable(f" session {failure.session_id}  "), _DULL)
        why = printable(f"{failure.dimension or failure.what}: {failure.reason}")
        if width >= _WIDE:
            rows = [line(ago, _DULL).append_text(who).append(why)]
        else:
            rows = [line("  ").append_text(who), line(ago, _DULL).append(why)]
        if len(lines) + len(rows) > room:
            break
        lines += rows
    return lines if len(lines) > 1 else []


def bar(done: int, planned: int, width: int) -> ProgressBar:
    """How much of it is done; full when there is nothing to do."""
    return ProgressBar(
        total=max(planned, 1),
        completed=min(done, planned) if planned else 1,
        width=width,
        complete_style=_GOOD,
        finished_style=_GOOD,
    )


def state(run: RunFigures) -> Text:
    """The verdict if there is one, else the state."""
    word = run.verdict or run.state or "requested"
    style = _STATES.get(run.verdict, _BAD if run.state in ("rejected", "failed") else "bold")
    return line(word.replace("_", " "), style)


def count(number: int | None, style: str = "") -> Text:
    """A number: dull when it is 0, a dash when it is not known."""
    if number is None:
        return Text("-", _DULL)
    return Text(str(number), style if number else _DULL)


def gap(width: int) -> int:
    """Blanks between columns."""
    return 1 if width < 100 else 2


def grid(headings: Iterable[tuple[str, str]], width: int) -> Table:
    """A table without lines, of columns (heading, left or right); no cell wraps."""
    table = Table(box=None, padding=(0, gap(width), 0, 0), pad_edge=False, header_style=_DULL)
    for heading, side in headings:
        table.add_column(
            heading, justify="right" if side == "right" else "left", no_wrap=True,
            overflow="ellipsis",
        )  # fmt: skip
    return table


def shortened(name: str, width: int) -> str:
    """A name that fits: its middle left out, for names differ at both ends."""
    name = printable(name)
    if len(name) <= width:
        return name
    tail = (width - 2) // 2
    return f"{name[: width - 2 - tail]}..{name[-tail:]}" if tail else name[:width]


def line(text: str, style: str = "") -> Text:
    """Text from anywhere, as one line that is cut where the terminal ends. What is appended to it
    has a style of its own.
    """
    return Text(no_wrap=True, overflow="ellipsis").append(printable(text), style)


def _title(run: RunFigures) -> Text:
    title = line(run.run_id, "bold")
    title.append("  ").append_text(state(run))
    about = [part for part in (run.suite, run.agent) if part]
    title.append(printable("  " + ", agent ".join(about)) if about else "", _DULL)
    return title


def _paces(run: RunFigures) -> Text:
    """How far and how fast, the most telling first: what does not fit is cut off."""
    parts = [f"{run.ended}/{run.planned} ended", f"{run.scored} judged", f"{run.active} active"]
    if not run.verdict:
        known = run.left_s is not None
        parts.append(f"about {duration(run.left_s)} left" if known else "time left unknown")
    for what, per_second in (("sessions/s", run.sessions_per_s), ("turns/s", run.turns_per_s)):
        if per_second is not None:
            parts.append(f"{rate(per_second)} {what}")
    if run.retried:
        parts.append(f"{run.retried} played again")
    if run.lost:
        parts.append(f"{run.lost} lost")
    if run.elapsed_s is not None:
        parts.append(f"{duration(run.elapsed_s)} so far")
    return line(", ".join(parts))


def _categories(run: RunFigures, width: int, room: int) -> tuple[list[RenderableType], int]:
    """Categories and their sum, and how many lines that takes."""
    most = room - 2  # heading and sum
    shown = run.categories[:most] if len(run.categories) <= most else run.categories[: most - 1]
    hidden = len(run.categories) - len(shown)
    if most < 2:
        shown, hidden = (), 0
    watched = run.known is not Known.NONE
    columns = [("category", "left"), ("", "left"), ("ended", "right")]
    if watched:
        columns += [(name, "right") for name in _OUTCOMES]
    table = grid(columns, width)
    wide = max(_LEAST_BAR, min(_MOST_BAR, width - _NAME - _NUMBERS - 7 * gap(width)))
    for one in shown:
        table.add_row(line(shortened(one.category, _NAME)), *_cells(one, wide, watched))
    if hidden > 0:
        table.add_row(line(f"{hidden} more", _DULL))
    table.add_row(Text("all", "bold"), *_cells(_sum(run), wide, watched))
    return [table], len(shown) + (hidden > 0) + 2


def _cells(one: CategoryFigures, wide: int, watched: bool) -> list[RenderableType]:
    cells: list[RenderableType] = [
        bar(one.ended, one.planned, wide),
        Text(f"{one.ended}/{one.planned}"),
    ]
    if not watched:
        return cells
    return [
        *cells,
        count(one.active),
        count(one.passed, _GOOD),
        count(one.failed, _BAD),
        count(one.unscored, _NOTE),
        count(one.invalid, _NOTE),
    ]


def _sum(run: RunFigures) -> CategoryFigures:
    return CategoryFigures(
        category="",
        planned=run.planned,
        started=run.started,
        ended=run.ended,
        passed=run.passed,
        failed=run.failed,
        unscored=run.unscored,
        invalid=run.invalid,
    )


def _reasons(run: RunFigures) -> Text:
    return line("Ended: " + ", ".join(f"{reason} {number}" for reason, number in run.reasons))


def _ago_s(failure: Failure, now_ms: int) -> float:
    return max(0.0, min((now_ms - failure.at_ms) / 1000, 359_999))
