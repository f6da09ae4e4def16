"""`cockpit report`: what the night came to, in one sentence and then in detail."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import alone, note, plain, print_json, print_table
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.read.alerts import Alert
    from worker.report.gaps import Gap
    from worker.report.going import GoingLine
    from worker.report.runs import RunLine
    from worker.report.standup import DayMoney, Report


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(report)


def report(
    context: typer.Context,
    *,
    date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="The morning; today's by default, noon to noon."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write it as one HTML file that needs nothing else; - is standard output.",
        ),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Tell the night before a morning. One that is over is kept as it is."""
    from engine.contract.outputs import is_standard_output  # noqa: PLC0415 - keeps --help light
    from worker.report.snapshot import report_of  # noqa: PLC0415 - keeps --help light

    printed = html is not None and is_standard_output(html)
    if printed and as_json:
        raise alone("--html", html)
    with opened(context, data_dir) as database:
        now = time.time()
        found = report_of(database, _day(date), now)
        if html is not None:
            _write(database, found, now, html)
    if as_json:
        print_json(found.model_dump(mode="json"))
    if as_json or printed:
        return
    typer.echo(found.sentence)
    _print_details(found)


def _write(database: Database, found: Report, now: float, target: Path) -> None:
    """The report as a file, whole or not at all."""
    from app.web.report_file import render_file  # noqa: PLC0415 - keeps --help light
    from engine.contract.outputs import (  # noqa: PLC0415 - keeps --help light
        is_standard_output,
        write_output,
    )

    text = render_file(database, found, now)
    remedy = "name a file in a folder that exists"
    if not target.name:
        raise ConfigError([ConfigProblem("--html", str(target), "is no name of a file", remedy)])
    try:
        write_output(target, [text])
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise ConfigError([ConfigProblem("--html", str(target), problem, remedy)]) from None
    if not is_standard_output(target):
        note(f"written: {target}")


def _print_details(found: Report) -> None:
    from app.text import seeds  # noqa: PLC0415 - keeps --help light

    if found.runs:
        typer.echo("")
        head = ("job", "name", "state", "verdict", "held-out", "n", "time", "cost", "peak")
        print_table(head, [_row(run) for run in found.runs])
    _benches(found.runs)
    _evaluated(found)
    _section("over seeds", map(seeds.group_line, found.groups))
    _section("still running" if found.over else "running", map(_going, found.going))
    for run in found.runs:
        if run.failed:
            typer.echo(f"\njob {run.job_id} {run.state}: {plain(run.error or run.cause or '')}")
            for line in run.last_lines:
                typer.echo(f"    {plain(line)}")
    _section("said while they went on", (_warned(r, a) for r in found.runs for a in r.alerts))
    put_off = (
        f"{name:<18}jobs {', '.join(map(str, jobs))}" for name, jobs in found.deferred.items()
    )
    _section("put off", put_off)
    _section("idle", map(_gap, found.gaps))
    _section("money", map(_money, found.days))
    if found.energy_kwh is not None:
        _section("energy", [f"{found.energy_kwh:.3f} kWh while jobs ran"])
    _section("for tonight", (proposal.text for proposal in found.proposals))
    if not found.over:
        note("this night is not over; the report may still change")


def _benches(runs: Iterable[RunLine]) -> None:
    """Of each run with benches or a mixture what it was judged on."""
    from app.text import benches  # noqa: PLC0415 - keeps --help light

    for run in runs:
        if run.reason:
            typer.echo(f"\njob {run.job_id} {run.verdict or run.state}: {plain(run.reason)}")
        if run.benches:
            typer.echo(f"\njob {run.job_id} was judged on:")
            print_table(*benches.text_table(run.benches))
            typer.echo(benches.looked_at(run.benches))


def _evaluated(found: Report) -> None:
    """Scores of checkpoints on benches, by jobs of the night."""
    from app.text import evaluated  # noqa: PLC0415 - keeps --help light

    for run in found.evaluated:
        typer.echo(f"\njob {run.job_id} was evaluated afterwards:")
        print_table(*evaluated.text_table(run))
        typer.echo(evaluated.steps(run))


def _section(title: str, lines: Iterable[str]) -> None:
    shown = [f"    {plain(line)}" for line in lines]
    if shown:
        typer.echo("\n".join(("", f"{title}:", *shown)))


def _warned(run: RunLine, alert: Alert) -> str:
    from app.text.findings import in_words  # noqa: PLC0415 - keeps --help light

    return f"job {run.job_id} {run.name}: {in_words(alert)}"


def _gap(gap: Gap) -> str:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    span = f"{wording.clock(gap.begin)} to {wording.clock(gap.end)}"
    return f"{span}  {wording.duration(gap.seconds):<14}{gap.why}"


def _going(one: GoingLine) -> str:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    step = "no step yet" if one.step is None else f"step {one.step}"
    scores = [wording.percent(score) for _, score in one.heldout]
    heldout = f", held-out {' → '.join(dict.fromkeys((scores[0], scores[-1])))}" if scores else ""
    dead = "" if one.alive else f", no sign of life after {wording.clock(one.until)}"
    if one.silent_since is not None:
        dead += f", SILENT: no event since {wording.clock(one.silent_since)}"
    time_of_it = f"{wording.duration(one.seconds)} of this night"
    return f"job {one.job_id} {one.name}: {time_of_it}, ${one.usd:.2f}, {step}{heldout}{dead}"


def _money(day: DayMoney) -> str:
    from worker.amounts import dollars  # noqa: PLC0415 - keeps --help light

    cap = "no cap" if day.cap_usd is None else f"of {dollars(day.cap_usd)}"
    return f"{day.day}  ${day.spent_usd:.2f} {cap}, {day.used_hours:.2f} lane hours"


def _row(run: RunLine) -> tuple[str, ...]:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    heldout = wording.UNKNOWN
    if run.lift is not None:
        heldout = f"{wording.points(run.lift)} ({wording.interval(run.low, run.high)})"
    return (
        str(run.job_id),
        run.name,
        run.state,
        (run.verdict or wording.UNKNOWN) + (" (demo)" if run.demo else ""),
        heldout,
        wording.rows(run.n, run.different).replace(" rows", "") if run.n else wording.UNKNOWN,
        wording.duration(run.seconds),
        f"${run.usd:.2f}",
        wording.gigabytes(run.peak_gb),
    )


def _day(text: str | None) -> datetime.date | None:
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        problem = ConfigProblem("--date", text, "is no date", "write it like 2026-11-21")
        raise ConfigError([problem]) from None
