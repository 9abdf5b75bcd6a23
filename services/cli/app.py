"""The commands, put together."""

from __future__ import annotations

import typer

from services.cli.commands import (
    agents,
    baseline,
    dead_letters,
    demo,
    doctor,
    gate,
    judge,
    report,
    run,
    scenarios,
    sql,
    tau2,
    top,
    topics,
    up,
)

app = typer.Typer(
    help="Simulate users, tools and failures for an agent; judge it; gate its deploy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("top")(top.top)
app.command("doctor")(doctor.doctor)
app.add_typer(gate.app, name="gate")
app.add_typer(baseline.app, name="baseline")
app.add_typer(judge.app, name="judge")
app.add_typer(scenarios.app, name="scenarios")
app.add_typer(agents.app, name="agents")
app.add_typer(tau2.app, name="tau2")
app.command("report")(report.report)
app.command("view")(report.view)
app.command("sql")(sql.sql)
app.add_typer(topics.app, name="topics")
app.add_typer(dead_letters.app, name="dead-letters")
