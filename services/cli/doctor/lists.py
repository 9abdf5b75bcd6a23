"""The steps about files: the tools list and the dataset."""

from __future__ import annotations

import json
from pathlib import Path

from schemas.errors import InvalidDocument, Problem
from services.cli.dataset import open_dataset
from services.cli.dataset_suite import check_dataset
from services.cli.doctor.catalogue import BY_ID
from services.cli.doctor.context import Context
from services.cli.doctor.documents import read_document
from services.cli.doctor.examination import in_thread
from services.cli.doctor.model import Settled, Step, Tell, failed, ok, skipped, warning
from services.cli.doctor.tools import ToolsReport, examine_tools
from services.cli.errors import CliError

_MAX_LINES = 20
_DATASET_S = 600.0


def tools_steps() -> list[Step[Context]]:
    return [
        Step(("tools",), _tools),
        Step(("tool_schemas",), _tool_schemas, needs=("tools",)),
    ]


def dataset_steps() -> list[Step[Context]]:
    return [Step(("dataset",), _dataset, timeout_s=_DATASET_S)]


async def _tools(context: Context, tell: Tell) -> None:
    request = context.request
    if request.tools is not None:
        path = request.tools
        context.tools_file = str(path)
        try:
            context.tools_list = await in_thread(lambda: read_document(path))
        except CliError as error:
            raise Settled(failed("tools", str(error), "name the file")) from None
        except InvalidDocument as error:
            mend = "write a list of tools in JSON or YAML"
            raise Settled(failed("tools", _counted(error), mend, *_lines(error))) from None
    elif context.tools_list is None:
        tell(skipped("tools", "no tools list is given (--tools, or a registration with --file)"))
        return
    report = examine_tools(context.tools_list)
    fixed = await in_thread(lambda: _fix(report, request.fix_tools))
    if report.problems:
        count = len(report.problems)
        detail = f"{context.tools_file} has {count} problem{'s'[: count != 1]}"
        mend = fixed or _mend(report)
        raise Settled(failed("tools", detail, mend, *_cut(report.problems)))
    context.tools = report.tools
    if not report.tools:
        tell(warning("tools", "the list is empty", "list the tools that the agent may call"))
        return
    count = len(report.tools)
    tell(ok("tools", f"{count} tool{'s'[: count != 1]} can be registered"))


def _mend(report: ToolsReport) -> str:
    if report.fixed is None:
        return BY_ID["tools"].mend
    return "have the list rewritten with --fix-tools FILE" + (
        ", and correct the rest by hand" if report.left else ""
    )


def _fix(report: ToolsReport, path: Path | None) -> str:
    """Write the list in Windtunnel's shape, if that is asked for; what was done.

    Raises:
        Settled: the file cannot be written.
    """
    if path is None or report.fixed is None:
        return ""
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(report.fixed, file, indent=2, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        detail = f"{path} cannot be written: {error.strerror}"
        raise Settled(failed("tools", detail, "name a new file with --fix-tools")) from None
    rest = f"; {len(report.left)} problems are left in it" if report.left else ""
    return f"use {path}, where the list was rewritten{rest}"


async def _tool_schemas(context: Context, tell: Tell) -> None:
    smells = examine_tools(context.tools_list).smells
    if smells:
        count = len(smells)
        detail = f"{count} tool{'s' if count != 1 else ''} could be described better"
        tell(warning("tool_schemas", detail, BY_ID["tool_schemas"].mend, *_cut(smells)))
    else:
        tell(ok("tool_schemas", "described, closed, with required arguments"))


async def _dataset(context: Context, tell: Tell) -> None:
    path = context.request.csv
    assert path is not None

    def check() -> tuple[int, list[Problem], tuple[str, ...]]:
        with open_dataset(path) as dataset:
            return (*check_dataset(dataset), dataset.ignored)

    mend = BY_ID["dataset"].mend
    try:
        rows, problems, ignored = await in_thread(check)
    except CliError as error:
        raise Settled(failed("dataset", str(error), "name the file")) from None
    except InvalidDocument as error:
        raise Settled(failed("dataset", _counted(error), mend, *_lines(error))) from None
    if problems:
        count = len(problems)
        detail = f"{path} has {count} problem{'s'[: count != 1]}"
        tell(failed("dataset", detail, mend, *_cut(tuple(map(str, problems)))))
    elif ignored:
        names = ", ".join(map(repr, ignored))
        detail = f"{rows} rows import as scenarios, without the columns {names}"
        tell(warning("dataset", detail, "rename them to user, state or behavior if they are those"))
    else:
        tell(ok("dataset", f"{rows} rows import as scenarios"))


def _counted(error: InvalidDocument) -> str:
    count = len(error.problems)
    return f"{count} problem{'s'[: count != 1]}"


def _lines(error: InvalidDocument) -> tuple[str, ...]:
    return _cut(tuple(map(str, error.problems)))


def _cut(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = len(lines) - _MAX_LINES
    return lines if more <= 0 else (*lines[:_MAX_LINES], f"and {more} more")
