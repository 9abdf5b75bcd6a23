"""`windtunnel judge`: how far the judge can be trusted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from schemas.registry import Suite
from schemas.topics import SUITES
from services.cli import calibration, options
from services.cli.connection import Where, connect, open_the_store
from services.cli.errors import CliError, command
from services.cli.labelling import write_sample
from services.cli.output import say, tell, tell_json
from services.cli.records import Latest
from services.cli.report.reading import RunReader

app = typer.Typer(help="The judge, measured against people.", no_args_is_help=True)


@app.command()
@command
def sample(
    run_id: Annotated[str, typer.Argument(help="The run.")],
    out: Annotated[Path, typer.Option("--out", help="The file, a session a line.")],
    sessions: Annotated[int, typer.Option(min=1, help="How many sessions.")] = 50,
    seed: Annotated[int, typer.Option(help="Which ones: the same seed draws the same.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    store: options.StoreUrl = "",
) -> None:
    """Draw sessions of a run into a file for people to label; `calibrate` reads it.

    Every label is null; null is not labelled. The judge's own verdicts are not in the file.
    """
    if out.exists() and not force:
        raise CliError(f"{out} is there already, perhaps with labels in it: say --force")
    where = Where(directory, bootstrap, store)
    suites = asyncio.run(Latest(connect(where), SUITES, Suite).read())
    opened = open_the_store(where)
    try:
        written = write_sample(
            RunReader(opened), suites.get, run_id, out, sessions=sessions, seed=seed
        )
    finally:
        opened.close()
    say(f"{written} sessions; label them, then: windtunnel judge calibrate {out}")
    tell(str(out))


@app.command()
@command
def calibrate(
    labelled: Annotated[
        Path, typer.Argument(help="Labelled trajectories, a session a line; see docs/judging.md.")
    ],
    model: Annotated[
        str | None, typer.Option(help="The judge's model as litellm names it; empty for none.")
    ] = None,
    api_base: Annotated[
        str | None, typer.Option(help="Where the model is; empty for the provider's own.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Verdicts on each criterion, odd.")] = None,
    agreement: Annotated[
        float | None, typer.Option(help="Share of the samples that must agree.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the samples.")] = None,
    batch: Annotated[
        bool | None, typer.Option("--batch/--single", help="All criteria in one call, or not.")
    ] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 below it, in any dimension.")
    ] = None,
    min_kappa: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Exit with 1 below it, in any dimension.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the report goes; default: LABELLED with .calibration.json."),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Compare the judge's verdicts with people's, by dimension.

    The judge is set as the service is, by WINDTUNNEL_JUDGE_* in the environment; options here go
    before it. The model's key is read from WINDTUNNEL_JUDGE_MODEL_API_KEY alone. Without a model
    the deterministic evaluators are compared, and what needs one is unscored.

    Exit codes: 0 the report was made and no bound is missed, 1 a bound is missed, 2 the file or a
    setting is wrong, 3 too few labels, or nothing that could be compared.
    """
    target = out or labelled.with_name(f"{labelled.stem}.calibration.json")
    report = calibration.run_judge(
        labelled,
        target,
        {
            "judge_model": model,
            "judge_model_api_base": api_base,
            "judge_samples": samples,
            "judge_agreement": agreement,
            "judge_model_temperature": temperature,
            "judge_batch": batch,
        },
    )
    if as_json:
        tell_json(report)
    else:
        calibration.tell_report(report)
    say(f"the report with every disagreement is in {target}")
    return calibration.exit_code(report, min_accuracy, min_kappa)
