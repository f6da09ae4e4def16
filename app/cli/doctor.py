"""`cockpit doctor`: what could spoil a night, before it begins."""

from __future__ import annotations

import typer

from app.cli.output import note, plain, print_json
from app.cli.place import AsJson, DataDir, worker_settings
from app.text.exits import Exit


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(doctor)


def doctor(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Look at disk, database, lane and programs; exit 1 when something is at risk."""
    from worker.read.diagnosis import Level, diagnose  # noqa: PLC0415 - keeps --help light

    findings = diagnose(worker_settings(context, data_dir))
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in findings])
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            typer.echo(f"{finding.level:<4}  {finding.name:<{width}}  {plain(finding.detail)}")
    risks = sum(finding.level is Level.RISK for finding in findings)
    if risks:
        note(f"{risks} at risk")
        raise typer.Exit(Exit.FAILED)
