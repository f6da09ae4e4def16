"""`cockpit compare A B`: is the difference real, and what was set apart? With `--groups` of two
configs over their seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.numbers import job_number
from app.cli.output import note, plain, print_json, print_table
from app.cli.place import AsJson, DataDir, opened

if TYPE_CHECKING:
    from worker.read.comparison.compare import Against, Comparison, Score, Side
    from worker.read.comparison.difference import Difference
    from worker.read.comparison.groups import GroupComparison

JobIds = Annotated[
    list[int],
    typer.Argument(
        parser=job_number, metavar="JOB...", help="Two to six jobs; each is held against the first."
    ),
]


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(compare)


def compare(
    context: typer.Context,
    *,
    job_ids: JobIds,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="Two jobs: their seed groups, tested between runs."),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Compare runs on their held-out rows, pair by pair, and their settings."""
    from worker.read.comparison.compare import compare_jobs  # noqa: PLC0415 - keeps --help light

    if groups:
        _groups(context, job_ids, data_dir, as_json=as_json)
        return
    with opened(context, data_dir) as database:
        found = compare_jobs(database, job_ids)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _groups(
    context: typer.Context, job_ids: list[int], data_dir: DataDir, *, as_json: bool
) -> None:
    from worker.read.comparison.compare import CompareError  # noqa: PLC0415 - keeps --help light
    from worker.read.comparison.groups import compare_groups  # noqa: PLC0415 - keeps --help light

    if len(job_ids) != 2:
        raise CompareError(f"two groups are compared, and {len(job_ids)} jobs are named; name two")
    with opened(context, data_dir) as database:
        found = compare_groups(database, *job_ids)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print_groups(found)


def _print_groups(found: GroupComparison) -> None:
    from app.text import seeds, wording  # noqa: PLC0415 - keeps --help light

    for caution in found.cautions:
        note(f"caution: {plain(caution)}")
    typer.echo(f"first: {seeds.members(found.a)}\nsecond: {seeds.members(found.b)}\n")
    for one in found.benches:
        size = f"{one.word}; {wording.points(one.lift)}; {seeds.tested(one)}"
        typer.echo(f"{plain(one.a.label)}: {size}")
        for which, side in (("first", one.a), ("second", one.b)):
            typer.echo(f"    {which}: {seeds.score(side.after)}, gain {seeds.gain(side.lift)}")
    rows = [(row.name, *map(wording.setting, row.values)) for row in found.settings]
    typer.echo("")
    if rows:
        print_table(("setting", "first", "second"), rows)
    else:
        typer.echo("every setting but the seed is the same")


def _print(found: Comparison) -> None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    for caution in found.cautions:
        note(f"caution: {plain(caution)}")
    head = ("job", "name", "state", "step 0", "picked", "step", "rows")
    print_table(head, [_side(side) for side in found.sides])
    typer.echo("")
    first, *others = found.sides
    for side, one in zip(others, found.against, strict=True):
        typer.echo(f"job {side.job_id} against job {first.job_id}: {_said(one, first, side)}")
        for name, part in one.by_source.items():
            size = f"{wording.points(part.lift)} ({wording.interval(part.low, part.high)})"
            typer.echo(f"    {plain(name)}: {size}, {part.word}")
    rows = [
        (row.name, *(wording.setting(value) for value in row.values))
        for row in found.settings
        if row.differs
    ]
    typer.echo("")
    if rows:
        print_table(("setting", *(f"job {side.job_id}" for side in found.sides)), rows)
    else:
        typer.echo("every setting is the same")


def _said(one: Against, first: Side, side: Side) -> str:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if one.picked is None:
        who = side if side.why_not else first
        why = f"job {who.job_id}: {who.why_not}" if who.why_not else "they measure different things"
        return f"no comparison; {why}"
    last = one.picked
    text = (
        f"{last.word}; {wording.points(last.lift)} "
        f"(95 % interval {wording.interval(last.low, last.high)})"
    )
    if not last.paired:
        return (
            f"{text}; no row in common, so nothing is paired and nothing is tested "
            "(runs of one corpus share theirs where data.split_seed is the same)"
        )
    text += f"; {_rows(last)}, {last.gained} gained, {last.lost} lost, p {_p(last)}"
    if one.at_base is not None and one.at_base.word in {"better", "worse"}:
        text += f"; they began apart: {wording.points(one.at_base.lift)} at step 0"
    return text


def _rows(last: Difference) -> str:
    same = f"{last.n} same rows"
    return same if last.different == last.n else f"{same}, {last.different} different"


def _p(last: Difference) -> str:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    return wording.number(last.p_value if last.p_holm is None else last.p_holm)


def _side(side: Side) -> tuple[str, ...]:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    def score(one: Score | None) -> str:
        return wording.percent(one.score if one else None)

    return (
        str(side.job_id),
        side.name,
        side.state,
        score(side.base),
        score(side.picked),
        str(side.picked.step) if side.picked else wording.UNKNOWN,
        str(side.picked.n) if side.picked else wording.UNKNOWN,
    )
