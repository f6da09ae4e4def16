"""`cockpit pause`, `resume`, `prune`: the queue as a whole, and what old runs take up."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from app.cli.enqueue import who
from app.cli.numbers import job_number
from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (pause, resume, prune):
        cli.command()(command)


def pause(
    context: typer.Context,
    *,
    why: Annotated[str, typer.Option(help="Shown wherever a job waits.")] = "",
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Claim nothing more; what runs goes on."""
    from worker.queue import pausing  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        changed = pausing.pause(database, actor=who(), why=why)
    if as_json:
        print_json({"paused": True, "changed": changed})
    note("the queue is paused" if changed else "the queue was paused before")


def resume(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Go on claiming."""
    from worker.queue import pausing  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        changed = pausing.resume(database, actor=who())
    if as_json:
        print_json({"paused": False, "changed": changed})
    note("the queue goes on; run it with: cockpit drain" if changed else "the queue was not paused")


def prune(
    context: typer.Context,
    *,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Runs that ended longer ago than that, e.g. 30d."),
    ] = None,
    job_id: Annotated[
        int | None, typer.Option("--job", parser=job_number, metavar="JOB", help="This run alone.")
    ] = None,
    selected_too: Annotated[
        bool,
        typer.Option(
            "--selected-too", help="Also the published checkpoint and the one held-out picked."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Throw away checkpoints, rollouts and metrics of old runs; their results stay."""
    from worker.queue import pruning  # noqa: PLC0415 - keeps --help light

    if (older_than is None) == (job_id is None):
        neither = "must know which runs"
        problem = neither if job_id is None else "has both --job and --older-than"
        remedy = "give --older-than 30d, or --job JOB"
        raise ConfigError([ConfigProblem("prune", None, problem, remedy)])
    with opened(context, data_dir, urgent=not dry_run) as database:
        if job_id is not None:
            one = pruning.prune_one(
                database, job_id, actor=who(), dry_run=dry_run, selected_too=selected_too
            )
            report = pruning.PruneReport([one], [])
        else:
            seconds = _seconds(older_than or "")
            report = pruning.prune_older(
                database, seconds, actor=who(), dry_run=dry_run, selected_too=selected_too
            )
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "pruned": [found._asdict() for found in report.pruned],
                "spared": [found._asdict() for found in report.spared],
            }
        )
    else:
        for found in report.pruned:
            files = "1 file" if found.files == 1 else f"{found.files} files"
            typer.echo(f"job {found.job_id}: {found.bytes / 1e6:.1f} MB in {files}")
    for left in report.spared:
        note(f"job {left.job_id} was left alone: {left.why}")
    total = sum(found.bytes for found in report.pruned) / 1e6
    runs = "1 run" if len(report.pruned) == 1 else f"{len(report.pruned)} runs"
    note(f"{runs}, {total:.1f} MB{' would go' if dry_run else ''}")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if found is None:
        remedy = "write it like 12h, 30d or 4w"
        raise ConfigError([ConfigProblem("--older-than", text, "is no time span", remedy)])
    return int(found[1]) * _DAYS[found[2]] * 86400
