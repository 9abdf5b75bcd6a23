"""How findings are told: a line each, what is more below it; and the page about all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from services.cli.doctor.catalogue import GROUPS
from services.cli.doctor.model import Finding, Outcome
from services.cli.escaping import printable
from services.cli.output import console, plain

PAGE = Path(__file__).resolve().parents[3] / "docs" / "doctor.md"
_COLOURS = {
    Outcome.OK: "green",
    Outcome.WARNING: "yellow",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
}
_WIDTH = 16


def tell_finding(finding: Finding) -> None:
    """One line on stdout, and what there is more to say indented below it."""
    out = console()
    text = Text(f"{finding.outcome.value:<8} ", style=_COLOURS[finding.outcome])
    text.append(f"{finding.check:<{_WIDTH}} ", style="bold")
    text.append(_line(finding), style="")
    out.print(text, soft_wrap=True)
    for line in finding.lines:
        out.print(Text(f"{'':<9}{printable(line)}", style="dim"), soft_wrap=True)


def _line(finding: Finding) -> str:
    detail = printable(" ".join(finding.detail.split()))
    return f"{detail}. Mend: {printable(finding.mend)}" if finding.mend else detail


def summary(findings: Sequence[Finding]) -> str:
    """How many checks went how, in a line."""
    counts = Counter(finding.outcome for finding in findings)
    return ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)


def as_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings as one JSON document."""
    failed = any(finding.outcome is Outcome.FAILED for finding in findings)
    return {"ok": not failed, "checks": [plain(finding) for finding in findings]}


def page() -> str:
    """docs/doctor.md. Written by `python -m services.cli.doctor.telling`."""
    parts = [_INTRODUCTION]
    for title, specs in GROUPS.items():
        rows = [f"| `{s.id}` | {s.expected} | {s.mend} |" for s in specs]
        head = ["| check | what must be so | how to mend it |", "|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """\
# The doctor

`windtunnel doctor` finds in one pass what keeps an agent from being tested, and says how to mend
it: a line a check, `ok`, `warning`, `failed`, or `skipped` with the reason. It ends with 0 if
nothing failed, with 1 if something did, with 2 for a mistake in the call. `--json` gives one
document instead.

```sh
windtunnel doctor                                # this machine, and the stack on it
windtunnel doctor --app my_agent.app:app         # an ASGI application, imported and served here
windtunnel doctor --url http://127.0.0.1:8800/dispatch
windtunnel doctor --file agent.yaml              # what is to be registered, tools and auth too
```

Auth is given by reference, as in a registration: `--auth-header Authorization --auth-value-ref
env:AGENT_AUTH`, or `file:PATH`. A value on a command line would be in the shell's history and in
every list of processes. `--tools FILE`, `--csv FILE` and `--proxy URL` add checks; `--conformance`
posts turns, and checks the endpoint against the runtime contract line by line. Its turns say
`--instruction TEXT`, best one that the agent calls a tool for, and tools answer what `--responses
FILE` says, a JSON object by tool, or what fits their output schemas. No real tool is called.

With `--app` the module is imported in a process of its own, from the current directory, and served
there on a free port of the loopback interface: a crash, a hang or a fork harms nothing else.
`--python` names another interpreter, which needs uvicorn.

Every question has a bound: `--timeout` for each one to the agent or the proxy, `--import-timeout`
for the import, `--turn-timeout` for each turn."""


if __name__ == "__main__":
    PAGE.write_text(page())
