"""`cockpit leaderboard`: what each checkpoint scored on each bench, and whether two differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.numbers import job_number, within
from app.cli.output import alone, note, plain, print_json, print_table
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.read.scores.leaderboard import Conditions, Leaderboard, Wanted
    from worker.read.scores.pairs import Pairs


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(leaderboard)


def leaderboard(
    context: typer.Context,
    *,
    bench: Annotated[
        list[str] | None, typer.Option(help="A bench by name; again for another beside it.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(parser=within(0), metavar="NUMBER", help="Worked examples.")
    ] = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help="How answers were read: strict-match, or a verifier."),
    ] = None,
    runner: Annotated[
        str | None, typer.Option(help="Who judged: own, harness, or gate (of a run).")
    ] = None,
    base: Annotated[str | None, typer.Option(help="The model that training began from.")] = None,
    tag: Annotated[str | None, typer.Option(help="Of the job that trained or scored it.")] = None,
    run: Annotated[
        int | None,
        typer.Option(parser=job_number, metavar="JOB", help="The job that trained it."),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best of each base alone.")] = False,
    sort: Annotated[str | None, typer.Option(help="score, truncated, unparsed or newest.")] = None,
    column: Annotated[
        str | None, typer.Option(help="The column that orders, by its measure (see --json).")
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            help="JOB.KEY~JOB.KEY (see --json): test two scores row by row; again for more."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(parser=within(1, 200), metavar="NUMBER", help="Lines.")
    ] = 50,
    csv: Annotated[
        Path | None, typer.Option(help="Write every score to a CSV file; - is standard output.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="The same as Parquet (extra `parquet`).")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Show what checkpoints scored, in the order of one bench; or test pairs of scores."""
    conditions = {
        "bench": bench or [],
        "shots": shots,
        "filter": filter_,
        "runner": runner,
        "base": base,
        "tag": tag,
        "run": run,
        "best": best,
    }
    page = {"sort": sort or "score", "column": column, "limit": limit}
    with opened(context, data_dir) as database:
        if pair:
            _show_pairs(database, pair, as_json=as_json)
        elif csv or parquet:
            _write_files(database, conditions, csv, parquet, as_json=as_json)
        else:
            _show(database, conditions | page, as_json=as_json)


def _show(database: Database, given: dict[str, Any], *, as_json: bool) -> None:
    from app.text import scores  # noqa: PLC0415 - keeps --help light
    from worker.read.scores.leaderboard import Wanted  # noqa: PLC0415
    from worker.read.scores.leaderboard import leaderboard as read  # noqa: PLC0415

    wanted: Wanted = _checked(Wanted, given)
    found: Leaderboard = read(database, wanted)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    if not found.lines:
        note("nothing was scored like that" if found.benches else "nothing has been scored yet")
        return
    print_table(*scores.text_table(found))
    note(scores.order(found, sort=wanted.sort, best=wanted.best))
    if found.next_after is not None:
        note(f"only the first {wanted.limit} are shown; --limit, or --csv FILE for all of them")
    if found.more_columns:
        note(f"{found.more_columns} more columns; narrow by --bench, --filter, --shots or --run")


def _show_pairs(database: Database, asked: list[str], *, as_json: bool) -> None:
    from pydantic import BaseModel, Field  # noqa: PLC0415 - keeps --help light

    from app.text import scores, wording  # noqa: PLC0415
    from worker.read.scores.pairs import MOST_PAIRS, PairRef, compare_pairs  # noqa: PLC0415

    class Asked(BaseModel):
        pair: list[PairRef] = Field(max_length=MOST_PAIRS)

    found: Pairs = compare_pairs(database, _checked(Asked, {"pair": asked}).pair)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for one in found.pairs:
        size = f"{wording.points(one.lift)} ({wording.interval(one.low, one.high)})"
        how = f"{wording.rows(one.n, one.different)}, p {wording.number(one.p_holm)}"
        sides = f"{scores.side(one.before)} -> {scores.side(one.after)}"
        told = how if one.paired else f"not paired: {one.why_not}"
        typer.echo(plain(f"{sides} on {scores.on(one)}: {one.word}; {size}; {told}"))
    note(scores.looked_at(found))


def _write_files(
    database: Database,
    given: dict[str, Any],
    csv: Path | None,
    parquet: Path | None,
    *,
    as_json: bool,
) -> None:
    from app.web import score_file, table_file  # noqa: PLC0415 - keeps --help light
    from engine.contract.outputs import is_standard_output, write_output  # noqa: PLC0415
    from engine.contract.run_dir import write_atomic  # noqa: PLC0415
    from worker.read.scores.leaderboard import Conditions, every_score  # noqa: PLC0415

    conditions: Conditions = _checked(Conditions, given)
    if csv is not None:
        if as_json and is_standard_output(csv):
            raise alone("--csv", csv)
        pieces = table_file.csv_lines(
            map(score_file.flat, every_score(database, conditions)), list(score_file.TYPES)
        )
        with _writable("--csv", csv):
            write_output(csv, pieces)
    if parquet is not None:
        data = table_file.parquet(
            map(score_file.flat, every_score(database, conditions)), score_file.TYPES
        )
        with _writable("--parquet", parquet):
            write_atomic(parquet, data)
    files = [str(file) for file in (csv, parquet) if file is not None]
    if as_json:
        print_json({"files": files})
    else:
        note(f"every score is in {' and '.join(files)}")


@contextmanager
def _writable(option: str, file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        remedy = "name a file that can"
        raise ConfigError([ConfigProblem(option, str(file), problem, remedy)]) from None


def _checked(model: Any, given: dict[str, Any]) -> Any:
    """Raises ConfigError, as for every other door."""
    from pydantic import ValidationError  # noqa: PLC0415 - keeps --help light

    from engine.contract.problems import problems_of  # noqa: PLC0415

    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ConfigError(problems_of(error, model)) from None
