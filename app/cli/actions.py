"""What people do to jobs that exist: `cockpit cancel`, `retry`, `requeue`, `move`, `edit`, …"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.enqueue import who
from app.cli.jobs import JobId
from app.cli.numbers import count, job_number
from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database

OtherJob = Annotated[int | None, typer.Option(metavar="JOB", parser=job_number)]


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (cancel, retry, requeue, move, edit, delete):
        cli.command()(command)


def cancel(
    context: typer.Context,
    *,
    job_id: Annotated[
        int | None, typer.Argument(parser=job_number, metavar="[JOB]", help="Number of the job.")
    ] = None,
    sweep: Annotated[
        int | None,
        typer.Option(parser=job_number, metavar="SWEEP", help="Every job of this sweep instead."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """End a job for good: a queued one at once, a running one at its next checkpoint."""
    from worker.queue import control  # noqa: PLC0415 - keeps --help light

    if (job_id is None) == (sweep is None):
        remedy = "give a job's number, or --sweep"
        raise ConfigError([ConfigProblem("cancel", None, "must know what", remedy)])
    with opened(context, data_dir, urgent=True) as database:
        _settle_orphans(database)
        if job_id is not None:
            done = {job_id: control.cancel(database, job_id, actor=who())}
        else:
            done = control.cancel_sweep(database, sweep or 0, actor=who())
        said = {number: _stopped(database, number, outcome) for number, outcome in done.items()}
    if as_json:
        print_json({"outcomes": {str(number): outcome for number, outcome in done.items()}})
    for number, words in said.items():
        note(f"job {number} {words}")
    if not done:
        note(f"every job of sweep {sweep} is over")


def requeue(
    context: typer.Context, *, job_id: JobId, as_json: AsJson = False, data_dir: DataDir = None
) -> None:
    """Let a running job write a checkpoint and go back into the queue."""
    from worker.queue import control  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir, urgent=True) as database:
        _settle_orphans(database)
        done = control.requeue(database, job_id, actor=who())
        if as_json:
            _print_stopped(database, job_id, done)
    asked = f"job {job_id} was asked to stop; it goes back into the queue at its next checkpoint"
    note(asked if done is control.Done.ASKED else f"job {job_id} is on its way already")


def retry(
    context: typer.Context,
    *,
    job_id: JobId,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="A new job from the beginning, with the same config.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Queue a job that did not succeed once more; it resumes. Prints its id."""
    from worker.queue import control  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        _settle_orphans(database)
        if fresh:
            queued = control.retry_fresh(database, job_id, actor=who())
        else:
            control.retry(database, job_id, actor=who())
            queued = job_id
        followers = control.followers_of(database, queued) if fresh else []
    if as_json:
        print_json({"job_id": queued})
    else:
        typer.echo(queued)
    note(f"job {queued} is queued; run it with: cockpit drain")
    if followers:
        note(f"what waited for job {job_id} waits for it: job {', '.join(map(str, followers))}")


def move(
    context: typer.Context,
    *,
    job_id: JobId,
    before: OtherJob = None,
    after: OtherJob = None,
    top: Annotated[bool, typer.Option("--top", help="Run it next.")] = False,
    bottom: Annotated[bool, typer.Option("--bottom", help="Run it last.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Give a queued job another place: --before or --after a job, --top or --bottom."""
    from worker.queue import order  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    if (before is not None) + (after is not None) + top + bottom != 1:
        remedy = "give one of --before JOB, --after JOB, --top and --bottom"
        raise ConfigError([ConfigProblem("move", None, "must know one place", remedy)])
    raw: dict[str, Any] = {"before": before, "after": after}
    if top or bottom:
        raw["to"] = "top" if top else "bottom"
    with opened(context, data_dir) as database:
        order.move(database, job_id, raw, actor=who())
        following = [job.id for job in jobs.next_jobs(database)]
    if as_json:
        print_json({"next": following})
    became = "stays where it is" if job_id in {before, after} else "was moved"
    note(f"job {job_id} {became}; next: {', '.join(map(str, following[:10]))}")


def edit(
    context: typer.Context,
    *,
    job_id: JobId,
    priority: Annotated[
        int | None, typer.Option(parser=count, metavar="NUMBER", help="Higher runs first.")
    ] = None,
    not_before: Annotated[
        str | None, typer.Option(help="Earliest start, e.g. +2h; `none` = at once.")
    ] = None,
    after: Annotated[
        list[int] | None, typer.Option(metavar="JOB", help="Run behind these jobs alone.")
    ] = None,
    no_after: Annotated[bool, typer.Option("--no-after", help="Run behind no other job.")] = False,
    if_parent_fails: Annotated[
        str | None, typer.Option(help="When such a job ends without success: cancel, run or wait.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="WORD", help="These tags alone.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    note_: Annotated[
        str | None, typer.Option("--note", help="What to remember about it; '' takes it away.")
    ] = None,
    archived: Annotated[
        bool | None,
        typer.Option("--archive/--unarchive", help="Leave it out of lists of runs, or not."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Change a queued job's conditions; of any job its tags, name and note, or archive it."""
    from worker.queue import control  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    if after and no_after:
        remedy = "give --after JOB, or --no-after"
        raise ConfigError([ConfigProblem("edit", None, "must know which parents", remedy)])
    given = {
        "priority": priority,
        "not_before": not_before,
        "after": [] if no_after else after,
        "if_parent_fails": if_parent_fails,
        "tags": tags,
        "name": name,
        "note": note_,
        "archived": archived,
    }
    raw: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not_before == "none":
        raw["not_before"] = None
    with opened(context, data_dir) as database:
        control.edit(database, job_id, raw, actor=who())
        if as_json:
            print_json(jobs.get_job(database, job_id).model_dump(mode="json"))
    note(f"job {job_id} was changed" if raw else f"nothing was asked of job {job_id}")


def delete(
    context: typer.Context,
    *,
    job_id: JobId,
    with_descendants: Annotated[
        bool, typer.Option("--with-descendants", help="Though runs began from its checkpoints.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Throw away a run's files, metrics and scores for good; its cost and audit stay."""
    from worker.queue import deletion  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir, urgent=True) as database:
        _settle_orphans(database)
        if dry_run:
            found = deletion.foreseen(database, job_id)
        else:
            found = deletion.delete_run(
                database, job_id, actor=who(), descendants_too=with_descendants
            )
    if as_json:
        print_json(found._asdict())
    if found.refused:
        note(found.refused)
    else:
        note(f"job {job_id} {'would free' if dry_run else 'freed'} {found.bytes / 1e6:.1f} MB")
    if found.descendants:
        note(f"began from it: job {', '.join(map(str, found.descendants))}")


def _settle_orphans(database: Database) -> None:
    """What a dead drain left is settled before anything is asked of it."""
    from worker.attempt.orphans import settle_orphans  # noqa: PLC0415 - keeps --help light

    for settled in settle_orphans(database):
        note(f"job {settled.job_id} had no drain any more and is {settled.state} now")


def _unattended(database: Database, job_id: int) -> bool:
    """Whether it says running, its drain is dead, and its lane could not be had to settle it."""
    from worker.attempt.orphans import orphaned_lanes  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    return jobs.get_job(database, job_id).lane in orphaned_lanes(database)


def _stopped(database: Database, job_id: int, outcome: str) -> str:
    """What came of a request to cancel a job, behind its number."""
    from worker.queue import control  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    if outcome != control.Done.AT_ONCE and _unattended(database, job_id):
        return (
            "is asked to stop, and no drain looks after it; the next one settles it: cockpit drain"
        )
    match outcome:
        case control.Done.AT_ONCE:
            return "is cancelled"
        case control.Done.ASKED:
            return "was asked to stop; it ends at its next checkpoint"
        case _ if not jobs.get_job(database, job_id).state.final:
            return "was asked to stop before; it still runs, up to its next checkpoint"
        case _:
            return "was cancelled before"


def _print_stopped(database: Database, job_id: int, outcome: str) -> None:
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    job = jobs.get_job(database, job_id)
    print_json({"outcome": outcome, "job": job.model_dump(mode="json")})
