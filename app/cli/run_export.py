"""`cockpit export`: a run's metrics, scores and completions as files for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app.cli.numbers import job_number
from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened


class Format(StrEnum):
    """Of the tables."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("export")(export)


def export(
    context: typer.Context,
    *,
    job_id: Annotated[
        int, typer.Argument(parser=job_number, metavar="JOB", help="Number of the job.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or an empty folder.")],
    form: Annotated[Format, typer.Option("--format", help="Of its tables.")] = Format.CSV,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Write a run as files: metrics, scores of its checkpoints, completions, and run.json.

    The folder is there whole or not at all. Steps that a resume made void are no part of it.
    """
    from app.web.run_export import export_run  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    target = to.expanduser().absolute()
    with opened(context, data_dir) as database:
        job = jobs.get_job(database, job_id)
        rows = export_run(database, job, target, form.value)
    if as_json:
        print_json({"folder": str(target), "rows": rows})
        return
    typer.echo(target)
    for name, count in rows.items():
        note(f"{name}: {count} row{'' if count == 1 else 's'}")
