"""`cockpit rescore`: stored completions by other verifiers; nothing is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.numbers import count
from app.cli.output import note, plain, print_json, print_table
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from app.text.rescored import Table
    from engine.contract.rescored import BenchRescored, Rescored
    from worker.db.connection import Database
    from worker.read.rescoring import Target

_MOST_TARGETS = 2


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("rescore")(rescore)


def rescore(
    context: typer.Context,
    *,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB|FILE...",
            help="A job (7, or 7@20 for its step 20), a run's folder, a held-out file, "
            "samples_*.jsonl of lm-evaluation-harness, or a log of Inspect; two are compared.",
        ),
    ],
    verifiers: Annotated[
        str,
        typer.Option(
            "--verifier", "-v", metavar="A,B,C", help="Who judges; others are held against A."
        ),
    ],
    split: Annotated[
        str | None, typer.Option(help="Only this one: select, report, or a bench's name.")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            parser=count, metavar="STEP", help="Of the run; else what held-out picked, or the last."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="A column that splits the rows: level, subject, ...")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Judge stored completions again: scores by each verifier, by answer format, by level and band.

    Of two, bench by bench and verifier by verifier, what changed from the first to the second.
    Nothing is sampled; a model is not even loaded.
    """
    from engine.contract.rescored import verifier_list  # noqa: PLC0415 - keeps --help light
    from worker.read import rescoring  # noqa: PLC0415 - keeps --help light

    if len(targets) > _MOST_TARGETS:
        problem = f"names {len(targets)}; one is judged, or two are compared"
        raise ConfigError([ConfigProblem("JOB", ", ".join(targets), problem, "name two at most")])
    with opened(context, data_dir) as database:
        found = [_target(database, one, step) for one in targets]
    second = found[1] if len(found) > 1 else None
    ask = rescoring.ask_of(found[0], second, verifier_list(verifiers), split=split, by=by)
    answer = rescoring.rescored(ask)
    if as_json:
        print_json(answer.model_dump(mode="json") | {"level": answer.level})
    else:
        _print(answer)


def _target(database: Database, given: str, step: int | None) -> Target:
    """A path that is there is that, else it is a job's number, with a step behind an @."""
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light
    from worker.read.rescoring import Target, target_of  # noqa: PLC0415

    path = Path(given).absolute()
    number, _, at = given.partition("@")
    if number.isdecimal() and (not at or at.isdecimal()) and not path.exists():
        job = jobs.get_job(database, int(number[:18]))
        return target_of(job, int(at[:18]) if at else step)
    if path.is_dir():
        return Target(path.name, path, step=step)
    if path.exists():
        return Target(path.name, None, file=path)
    problem = "is neither the number of a job nor a file that is there"
    remedy = "write 7, 7@20, or the path of a file of completions"
    raise ConfigError([ConfigProblem("JOB", given, problem, remedy)])


def _print(found: Rescored) -> None:
    from app.text import rescored  # noqa: PLC0415 - keeps --help light

    for bench in found.benches:
        for said in bench.said:
            note(plain(said))
        _print_bench(bench)
    if any(bench.changes for bench in found.benches):
        _print_table(rescored.changes(found))
        typer.echo(rescored.multiplicity(found))


def _print_bench(bench: BenchRescored) -> None:
    from app.text import rescored  # noqa: PLC0415 - keeps --help light

    for table in (rescored.scores(bench), rescored.forms(bench)):
        _print_table(table)
    for more in (rescored.parts(bench), rescored.pass_at(bench)):
        if more is not None:
            _print_table(more)
    for one, sentence in rescored.known(bench):
        typer.echo(sentence)
        for example in one.known:
            typer.echo(f"  {plain(example.id)}: {plain(_end(example.text))}")
            typer.echo(
                f"    gold {plain(example.gold)}, read as {plain(example.read or 'nothing')}"
            )
        typer.echo("")


def _end(text: str) -> str:
    """The end of a completion, in a line."""
    return " ".join(text.split())[-100:]


def _print_table(table: Table) -> None:
    typer.echo(plain(table.title))
    print_table(table.head, table.rows)
    typer.echo("")
