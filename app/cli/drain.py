"""`cockpit drain`: run what is queued, here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, worker_settings

if TYPE_CHECKING:
    from worker.attempt.writing import Settled
    from worker.drain import DrainReport


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(drain)


def drain(
    context: typer.Context,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay, and run what is queued later too.")
    ] = False,
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help="Obey the policy: for the tick and for cron.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Run queued jobs one after the other; ends when nothing is left.

    Ctrl-C lets the running job write a checkpoint and puts it back into the queue.
    """
    from worker.drain import drain as run  # noqa: PLC0415 - keeps --help light
    from worker.private import keep_private  # noqa: PLC0415 - keeps --help light

    keep_private()
    report = run(worker_settings(context, data_dir), wait=wait, scheduled=scheduled)
    if as_json:
        print_json(
            {
                "rescued": [_outcome(settled) for settled in report.rescued],
                "ran": [_outcome(settled) for settled in report.ran],
                "stopped": report.stopped,
                "paused": report.paused,
                "put_off": [put_off._asdict() for put_off in report.put_off],
                "withheld": report.withheld,
            }
        )
        return
    for settled in report.rescued:
        note(f"job {settled.job_id}: attempt {settled.attempt} was found dead, {_words(settled)}")
    for settled in report.ran:
        typer.echo(f"job {settled.job_id}: {_words(settled)}")
    for job_id, reason, detail in report.put_off:
        note(f"job {job_id} waits: {reason}: {detail}")
    note(_ending(report))


def _outcome(settled: Settled) -> dict[str, Any]:
    return {
        "job_id": settled.job_id,
        "attempt": settled.attempt,
        "state": settled.state,
        "cause": settled.cause,
        "error": settled.error,
    }


def _words(settled: Settled) -> str:
    return ": ".join(filter(None, (settled.state, settled.cause, settled.error)))


def _ending(report: DrainReport) -> str:
    if report.stopped:
        return "stopped on request; cockpit drain goes on from here"
    if report.paused:
        return "the queue is paused; cockpit resume lets it go on"
    if report.withheld:
        return f"nothing more is started: {report.withheld}"
    if report.put_off:
        return "nothing else can start now"
    return "the queue is done" if report.ran else "nothing was queued"
