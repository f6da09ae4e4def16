"""`cockpit enqueue`: validate a config and put a job into the queue."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("enqueue")(enqueue)


def enqueue(
    context: typer.Context,
    *,
    kind: Annotated[str, typer.Argument(help="A kind of job; `cockpit kinds` lists them.")],
    file: Annotated[str, typer.Argument(help="A YAML config, or - for standard input.")],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one setting, e.g. warmup.lr=1e-3."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call the job.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved config; write nothing.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Queue a job. Prints its id."""
    from engine.contract.kinds import (  # noqa: PLC0415 - keeps --help light
        parse_yaml,
        text_problems,
        validate,
    )

    raw = parse_yaml(_read(file))
    for assignment in assignments or ():
        assign(raw, assignment)
    if dry_run:
        _print_config(validate(kind, raw).model_dump(mode="json"), as_json=as_json)
        return
    from worker.jobs.queue import enqueue as put  # noqa: PLC0415 - keeps --help light

    if unwritable := text_problems(name, "--name"):
        raise ConfigError(unwritable)
    with opened(context, data_dir) as database:
        job_id = put(database, kind, raw, actor=_actor(), name=name)
    if as_json:
        print_json({"job_id": job_id})
    else:
        typer.echo(job_id)
    note(f"job {job_id} is queued; run it with: cockpit drain")


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    remedy = "name a YAML file, or - for standard input"
    raise ConfigError([ConfigProblem("FILE", file, problem, remedy)])


def assign(raw: dict[str, Any], assignment: str) -> None:
    """`warmup.lr=1e-3`: the value is read as YAML, missing sections come into being."""
    from engine.contract.kinds import parse_yaml  # noqa: PLC0415 - keeps --help light

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


def _actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a user id without a name
        return "cli"


def _print_config(config: dict[str, Any], *, as_json: bool) -> None:
    import yaml  # noqa: PLC0415 - keeps --help light

    if as_json:
        print_json(config)
    else:
        typer.echo(yaml.safe_dump(config, sort_keys=False, allow_unicode=True).rstrip())
