"""`cockpit autonomy`: arm the lane once, see what it may do, preview a night, switch it off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.enqueue import who
from app.cli.numbers import amount, count
from app.cli.output import note, print_json, print_table
from app.cli.place import AsJson, DataDir, opened

if TYPE_CHECKING:
    from worker.read.tonight import Preview, Step
    from worker.schedule.autonomy import Status

group = typer.Typer(
    help="Let the lane run its queue by itself.", no_args_is_help=True, rich_markup_mode=None
)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="autonomy")


@group.command()
def on(
    context: typer.Context,
    *,
    interval_min: Annotated[
        float,
        typer.Option(
            parser=amount, metavar="NUMBER", help="Minutes between two looks at the queue."
        ),
    ] = 30.0,
    cap_usd: Annotated[
        float | None,
        typer.Option(
            parser=amount,
            metavar="NUMBER",
            help="Most US dollars for one local day; no cap by default.",
        ),
    ] = None,
    cap_gpu_hours: Annotated[
        float | None,
        typer.Option(
            parser=amount, metavar="NUMBER", help="Most hours of the lane for one local day."
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="Hours in which jobs run, e.g. 22:00-07:00.")
    ] = None,
    days: Annotated[
        str | None, typer.Option(help="Weekdays on which the window begins, e.g. mon-fri.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Time zone, e.g. Europe/Berlin; else the machine's.")
    ] = None,
    max_failures: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="NUMBER",
            help="Failures in a row after which nothing more is started.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Moment after which nothing more is started, e.g. +7d.")
    ] = None,
    install_cron: Annotated[
        bool, typer.Option("--install-cron", help="Put the line into the crontab.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Arm the lane. Prints the crontab line; what was armed before is replaced."""
    from worker.amounts import exact  # noqa: PLC0415 - keeps --help light
    from worker.schedule.autonomy import status as status_of  # noqa: PLC0415 - keeps --help light
    from worker.schedule.autonomy import switch_on  # noqa: PLC0415 - keeps --help light
    from worker.schedule.policy import described  # noqa: PLC0415 - keeps --help light

    raw = {
        "interval_min": interval_min,
        "cap_usd": cap_usd,
        "cap_gpu_hours": cap_gpu_hours,
        "window": window,
        "days": days,
        "zone": zone,
        "max_failures": max_failures,
        "expires": expires,
    }
    with opened(context, data_dir) as database:
        done = switch_on(database, raw, actor=who(), now=time.time(), install=install_cron)
        stands = status_of(database, time.time())
    if as_json:
        terms = done.standing.terms().model_dump()
        print_json(
            {
                "armed": True,
                "terms": terms,
                "line": done.line,
                "installed": done.installed,
                "cautions": stands.cautions,
            }
        )
    elif done.line is not None:
        typer.echo(done.line)
    note(f"armed: every {exact(done.standing.interval_min)} min, {described(done.standing)}")
    if done.line is None:
        note("a crontab cannot say this interval; keep `cockpit serve` running")
    elif not done.installed:
        note("keep `cockpit serve` running, or put the line into your crontab (--install-cron)")
    else:
        note("the line is in your crontab")
    for caution in stands.cautions:
        note(f"caution: {caution}")


@group.command()
def off(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Switch it off: no cron line, no dead attempts, the resident model up again."""
    from worker.schedule.autonomy import switch_off  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        done = switch_off(database, actor=who(), now=time.time())
    if as_json:
        print_json(
            {
                "was_armed": done.was_armed,
                "line_removed": done.line_removed,
                "rescued": [settled.job_id for settled in done.rescued],
                "busy": done.busy,
                "resident_owed": done.resident_owed,
            }
        )
    note("autonomy is off" if done.was_armed else "autonomy was off before")
    if done.line_removed:
        note("the crontab line is gone")
    if done.busy:
        note(f"{done.busy} (it ends after that job and cleans up)")
    elif done.resident_owed:
        note("the resident model could not be started; look at logs/resident.log")
        raise typer.Exit(1)


@group.command()
def status(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Say what the lane may do by itself, and what today has cost."""
    from worker.schedule import autonomy  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        found = autonomy.status(database, time.time())
    if as_json:
        print_json(found.model_dump())
    else:
        _print_status(found)


@group.command("preview")
def preview_(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Show tonight before it happens: order, start, finish, cost, memory, and who must wait."""
    from worker.read.tonight import preview  # noqa: PLC0415 - keeps --help light
    from worker.schedule.admission import memory_of  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        found = preview(database, time.time(), lambda: memory_of(database))
    if as_json:
        print_json(found.model_dump())
    else:
        _print_preview(found)


def _print_status(found: Status) -> None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light
    from worker.amounts import dollars, exact  # noqa: PLC0415 - keeps --help light

    terms = found.terms or {}
    cap, hours = terms.get("cap_usd"), terms.get("cap_gpu_hours")
    failures, expires_at = terms.get("max_failures"), terms.get("expires_at")
    most_hours = f" of {exact(hours)} h" if hours is not None else ""
    facts = [
        ("lane", found.lane),
        ("autonomy", "armed" if found.armed else "off, by itself" if found.over else "off"),
        ("now", found.detail if found.reason is None else f"{found.reason}: {found.detail}"),
        ("next", wording.clock(found.next_eligible_at) if found.next_eligible_at else None),
        ("set", f"{wording.clock(found.changed_at)} by {found.changed_by}" if terms else None),
        ("interval", f"{exact(terms['interval_min'])} min" if terms else None),
        ("expires", wording.clock(expires_at) if expires_at is not None else None),
        ("ends after", f"{failures} failures in a row" if failures is not None else None),
        (
            "spent today",
            f"${found.spent_usd:.2f}" + (f" of {dollars(cap)}" if cap is not None else ""),
        ),
        (
            "used today",
            f"{found.used_hours:.2f} h{most_hours} at {dollars(found.price_usd_h)}/h",
        ),
        ("looked at by", " and ".join(found.looked_at_by) if found.armed else None),
        ("next look", wording.clock(found.next_look_at) if found.next_look_at else None),
        ("cron's next", wording.clock(found.next_cron_at) if found.next_cron_at else None),
        ("crontab", found.cron_line),
        ("resident", "owed a start" if found.resident_owed else None),
    ]
    for name, value in facts:
        for line in (value or "").splitlines():
            typer.echo(f"{name:<14}{line}")
    for caution in found.cautions:
        note(f"caution: {caution}")


def _print_preview(found: Preview) -> None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if found.starts_at is None:
        note(f"nothing starts by itself: {found.reason}: {found.detail}")
    else:
        closes = f" to {wording.clock(found.closes_at)}" if found.closes_at else ""
        whose = ", as a person's drain goes on: it asks no window and no cap"
        note(f"from {wording.clock(found.starts_at)}{closes}{whose if found.ordered else ''}")
    head = ("job", "name", "start", "finish", "cost", "memory", "why not")
    print_table(head, [_row(step) for step in found.steps])
    note(f"expected: ${found.expected_usd:.2f}, with ${found.spent_usd:.2f} spent today")


def _row(step: Step) -> tuple[str, ...]:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    finish = wording.clock(step.finishes_at)
    if step.stops_at is not None:
        finish = f"stops {wording.clock(step.stops_at)}"
    why = f"{step.reason}: {step.detail}" if step.reason else ""
    if step.reason and step.next_eligible_at:
        why = f"{why} (not before {wording.clock(step.next_eligible_at)})"
    return (
        str(step.job_id),
        step.name,
        wording.clock(step.starts_at),
        finish,
        f"${step.cost_usd:.2f}",
        wording.gigabytes(step.need_gb),
        why,
    )
