"""`windtunnel judge calibrate`: the judge's own process makes the report; here it is told.

The judge is started as a process, since nobody but the judge judges, and since its model's library
takes seconds to load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.cli.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS, CliError
from services.cli.output import say, tell_table
from services.runtime.settings import ENV_PREFIX

COLUMNS = (
    "dimension", "labels", "compared", "unscored", "not applicable", "accuracy (95 %)",
    "kappa (95 %)", "false passes", "false fails", "",
)  # fmt: skip
_LAST_CHARS = 4_000


def run_judge(labelled: Path, out: Path, settings: Mapping[str, object]) -> dict[str, Any]:
    """Judge a labelled file; the report, which `out` holds too.

    `settings`: of the judge, by their names; what is None is left as the environment has it.

    Raises:
        CliError: the file, a setting or the judge is not right; with the judge's own words.
    """
    given = {name: _written(value) for name, value in settings.items() if value is not None}
    environ = {**os.environ, **{ENV_PREFIX + name.upper(): value for name, value in given.items()}}
    if out.resolve() == labelled.resolve():
        raise CliError(f"{out} holds the labels; the report needs a file of its own")
    done = subprocess.run(
        [sys.executable, "-m", "services.judge.calibration", str(labelled), str(out)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    said = done.stderr.decode(errors="replace").strip()[-_LAST_CHARS:]
    if done.returncode:
        raise CliError(said or f"the judge ended with exit code {done.returncode}")
    report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return report


def tell_report(report: Mapping[str, Any]) -> None:
    """The table on stdout, and what has to be known about it on stderr."""
    tell_table(COLUMNS, [list(_row(one)) for one in report["dimensions"]])
    say(f"{report['judge']}; {report['sessions']} sessions, {report['invalid']} of them invalid")
    for one in report["dimensions"]:
        for reason in one["unscored_reasons"]:
            say(f"{one['dimension']}: unscored: {reason}")
        if one["kappa"] is None and one["compared"]:
            say(f"{one['dimension']}: no kappa: chance alone would always agree")


def exit_code(
    report: Mapping[str, Any], min_accuracy: float | None, min_kappa: float | None
) -> int:
    """0; 1 when a dimension is below a bound; 3 when nothing could be compared, or a bound is set
    and a dimension has too few labels for it.
    """
    dimensions = report["dimensions"]
    bounds = {"accuracy": min_accuracy, "kappa": min_kappa}
    set_bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    below, unknown = [], []
    for one in dimensions:
        for name, bound in set_bounds.items():
            figure = one[name]
            if one["too_few"] or figure is None:
                unknown.append(f"{one['dimension']}: {one['too_few'] or f'it has no {name}'}")
            elif figure["value"] < bound:
                below.append(f"{one['dimension']}: {name} {figure['value']:.2f} is below {bound:g}")
    for words in dict.fromkeys((*below, *unknown)):
        say(words)
    if below:
        return EXIT_FAIL
    if unknown or not any(one["compared"] for one in dimensions):
        return EXIT_INCONCLUSIVE
    return EXIT_PASS


def _row(one: Mapping[str, Any]) -> Iterator[object]:
    yield one["dimension"]
    for name in ("labels", "compared", "unscored", "not_applicable"):
        yield one[name]
    yield _figure(one["accuracy"])
    yield _figure(one["kappa"]) + (" weighted" if one["weighted"] and one["kappa"] else "")
    ratings = one["weighted"]
    yield "-" if ratings else one["false_passes"]
    yield "-" if ratings else one["false_fails"]
    yield f"too few labels: {one['too_few']}" if one["too_few"] else ""


def _figure(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return "-"
    return f"{figure['value']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


def _written(value: object) -> str:
    """A setting as the environment has it."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
