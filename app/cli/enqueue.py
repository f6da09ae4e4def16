"""`cockpit enqueue`: validate a config and put a job into the queue."""

from __future__ import annotations

import copy
import getpass
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from app.cli.numbers import count, job_number
from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.queue.submission import Submission


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("enqueue")(enqueue)


def enqueue(
    context: typer.Context,
    *,
    kind: Annotated[
        str | None, typer.Argument(help="A kind of job; `cockpit kinds` lists them.")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(help="A YAML config, or - for standard input; else --set alone.")
    ] = None,
    begun: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="JOB",
            help="Go on from what a run published (7) or its step 20 (7@20), with its settings.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set one setting, e.g. warmup.lr=1e-3; seeds=[0,1,2] makes a run of each.",
        ),
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="KEY=[…]",
            help="A job for every combination, e.g. lr=[1e-4,1e-3]; or a `sweep:` block.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call the job.")] = None,
    priority: Annotated[
        int, typer.Option(parser=count, metavar="NUMBER", help="Higher runs first: -100 to 100.")
    ] = 0,
    not_before: Annotated[
        str | None,
        typer.Option(
            help="Earliest start: +2h, or 2030-11-22 22:00, in the lane's zone or with one."
        ),
    ] = None,
    after: Annotated[
        list[int] | None,
        typer.Option(parser=job_number, metavar="JOB", help="Run behind this job has ended."),
    ] = None,
    if_parent_fails: Annotated[
        str, typer.Option(help="When such a job ends without success: cancel, run or wait.")
    ] = "cancel",
    clone_of: Annotated[
        int | None,
        typer.Option(
            parser=job_number,
            metavar="JOB",
            help="The job this one began from; it is remembered, no more.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="WORD", help="A word to find it by.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="The same request under the same key gives the same job."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also when the same job has a result, waits or runs.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the resolved config and what the job needs and costs; queue nothing.",
        ),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Queue a job, or with a sweep several. Prints their ids."""
    from worker.queue.submission import submission  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        start = _start(database, begun, kind, file, assignments or [])
        raw = start.config
        wanted = submission(
            {
                "kind": start.kind,
                "config": raw,
                "sweep": _axes(raw, axes),
                "name": start.name if name is None else name,
                "priority": priority,
                "not_before": not_before,
                "after": after or [],
                "if_parent_fails": if_parent_fails,
                "clone_of": start.job_id if clone_of is None else clone_of,
                "tags": tags or [],
                "force": force,
            }
        )
        if dry_run:
            try_out(database, wanted, as_json=as_json)
        elif wanted.sweep is None:
            enqueue_one(database, wanted, key, as_json=as_json)
        else:
            _enqueue_sweep(database, wanted, key, as_json=as_json)


class _Start(NamedTuple):
    """What a new job is made from."""

    kind: str
    config: dict[str, Any]
    name: str | None = None
    job_id: int | None = None
    """The run that it goes on from."""


def _start(
    database: Database, begun: str | None, kind: str | None, file: str | None, sets: Sequence[str]
) -> _Start:
    """A file with its settings, those alone, or a run that is gone on from."""
    if begun is not None:
        return _continued(database, begun, kind, file, sets)
    if kind is None:
        remedy = "name one, as `cockpit kinds` lists them, or a run: --from 7"
        raise ConfigError([ConfigProblem("KIND", None, "is missing", remedy)])
    if file is None and not sets:
        remedy = "name a YAML file, or - for standard input, or settings with --set"
        raise ConfigError([ConfigProblem("FILE", None, "is missing", remedy)])
    raw = {} if file is None else read_config(file)
    for assignment in sets:
        assign(raw, assignment)
    return _Start(kind, raw)


def _continued(
    database: Database, begun: str, kind: str | None, file: str | None, sets: Sequence[str]
) -> _Start:
    """Raises ConfigError for a run without such a checkpoint, and beside a kind or a file."""
    from app.cli.checkpoints import checkpoint_named  # noqa: PLC0415 - keeps --help light
    from worker.queue.continuing import continued  # noqa: PLC0415

    if kind is not None or file is not None:
        remedy = "leave it out, and change settings with --set"
        problem = "is what the run has that --from names"
        raise ConfigError([ConfigProblem("KIND", kind, problem, remedy)])
    job, place = checkpoint_named(database, "--from", begun)
    raw = copy.deepcopy(job.config)
    for assignment in sets:
        assign(raw, assignment)
    chosen = {one.partition("=")[0] for one in sets}
    name = None if job.name == job.kind else job.name
    return _Start(job.kind, continued(job.kind, raw, place, chosen=chosen), name, job.id)


def enqueue_one(database: Database, wanted: Submission, key: str | None, *, as_json: bool) -> None:
    """Queue it and print its id, with what it had better not say."""
    from worker.queue.submit import submit  # noqa: PLC0415 - keeps --help light
    from worker.read.room import cautions_here  # noqa: PLC0415 - keeps --help light

    done = submit(database, wanted, actor=who(), key=key)
    if as_json:
        print_json({"job_id": done.job_id, "repeated": done.repeated})
    else:
        typer.echo(done.job_id)
    if done.repeated:
        note(f"the key was used for this before: it is job {done.job_id}")
    else:
        note(f"job {done.job_id} is queued; run it with: cockpit drain")
    for caution in cautions_here(database, wanted):
        note(f"caution: {caution.line()}")


def _enqueue_sweep(
    database: Database, wanted: Submission, key: str | None, *, as_json: bool
) -> None:
    from worker.queue.sweeps import submit_sweep  # noqa: PLC0415 - keeps --help light
    from worker.read.room import cautions_here  # noqa: PLC0415 - keeps --help light

    done = submit_sweep(database, wanted, actor=who(), key=key)
    if as_json:
        print_json(done._asdict())
    else:
        for job_id in done.job_ids:
            typer.echo(job_id)
    count = f"{len(done.job_ids)} jobs"
    if done.repeated:
        note(f"the key was used for this before: it is sweep {done.sweep_id}, {count}")
    else:
        note(f"sweep {done.sweep_id}: {count} are queued; run them with: cockpit drain")
    for caution in cautions_here(database, wanted):
        note(f"caution: {caution.line()}")


def _axes(raw: dict[str, Any], options: list[str] | None) -> Any:
    """The `sweep:` block of the document with what the options add; None = there is no sweep."""
    block = raw.pop("sweep", None)
    if not options:
        return block
    axes: dict[str, Any] = dict(block) if isinstance(block, dict) else {}
    for option in options:
        from engine.contract.documents import parse_yaml  # noqa: PLC0415 - keeps --help light

        key, equals, text = option.partition("=")
        values = parse_yaml(f"value: {text}").get("value") if equals else None
        if not key or not isinstance(values, list):
            remedy = "write --sweep lr=[1e-4,1e-3]"
            raise ConfigError([ConfigProblem("--sweep", option, "is no list of values", remedy)])
        axes[key] = values
    return axes


def read_config(file: str) -> dict[str, Any]:
    """A YAML document, `-` for standard input. Raises ConfigError."""
    from engine.contract.documents import parse_yaml  # noqa: PLC0415 - keeps --help light

    return parse_yaml(_read(file))


def _read(file: str) -> str:
    from engine.contract.documents import (  # noqa: PLC0415 - keeps --help light
        MAX_CONFIG_BYTES,
        read_stream,
        read_text,
        why,
    )

    try:
        if file in {"-", "/dev/stdin"}:
            return read_stream(sys.stdin.buffer, MAX_CONFIG_BYTES)
        if _DESCRIPTOR.fullmatch(file):  # a shell's <(…): a pipe that has its writer
            with Path(file).open("rb") as stream:
                return read_stream(stream, MAX_CONFIG_BYTES)
        return read_text(Path(file), MAX_CONFIG_BYTES)
    except OSError as error:
        problem = why(error)
    remedy = "name a YAML file, or - for standard input"
    raise ConfigError([ConfigProblem("FILE", file, problem, remedy)])


_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/[0-9]+")


def assign(raw: dict[str, Any], assignment: str) -> None:
    """`warmup.lr=1e-3`: the value is read as YAML, missing sections come into being."""
    from engine.contract.documents import parse_yaml  # noqa: PLC0415 - keeps --help light

    key, equals, text = assignment.partition("=")
    *path, last = key.split(".")
    if not equals or not all((*path, last)):
        remedy = "write --set key=value"
        raise ConfigError([ConfigProblem("--set", assignment, "is no assignment", remedy)])
    section: Any = raw
    for part in path:
        if section.get(part) is None:
            section[part] = {}
        section = section[part]
        if not isinstance(section, dict):
            problem = f"cannot be set: {part} is a value, not a section"
            raise ConfigError([ConfigProblem(key, text, problem, "correct the key")])
    section[last] = parse_yaml(f"value: {text}").get("value")


def who() -> str:
    """Who asked, as the audit names it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a user id without a name
        return "cli"


def try_out(database: Database, wanted: Submission, *, as_json: bool) -> None:
    """The config, or each point of a sweep, and in notes what the form would say of it."""
    from app.forms.check_report import CheckReport, dry_run  # noqa: PLC0415 - keeps --help light
    from engine.contract.documents import dump_yaml  # noqa: PLC0415

    found = dry_run(database, wanted)
    report = CheckReport.of(found.check)
    resolved: dict[str, Any] = {"config": found.candidates[0].config}
    if wanted.sweep is not None:
        points = [dict(one.sweep_point or {}) for one in found.candidates]
        resolved = {"jobs": len(points), "points": points}
    if as_json:
        print_json(resolved | report.model_dump(mode="json"))
        return
    typer.echo(dump_yaml(resolved.get("config", resolved)).rstrip())
    for line in report.lines():
        note(line)
    for caution in found.check.cautions:
        note(f"caution: {caution.line()}")
    for one in found.check.examples:
        said = f"; {one.note}" if one.note else ""
        note(f"a prompt of {one.name} (row {one.row}{said}):\n{one.text}")
