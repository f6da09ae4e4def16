"""`cockpit budget`: what a day has cost, row by row, and money that was spent elsewhere."""

from __future__ import annotations

import datetime
import time
from typing import Annotated

import typer

from app.cli.enqueue import who
from app.cli.numbers import amount
from app.cli.output import note, print_json, print_table
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

group = typer.Typer(help="The lane's money and hours.", no_args_is_help=True, rich_markup_mode=None)

Day = Annotated[
    str | None, typer.Option("--day", metavar="YYYY-MM-DD", help="A local day; else today.")
]


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="budget")


@group.command()
def show(
    context: typer.Context, *, day: Day = None, as_json: AsJson = False, data_dir: DataDir = None
) -> None:
    """Print the ledger of one local day and its sums."""
    from app.text import wording  # noqa: PLC0415 - keeps --help light
    from worker.budget import ledger  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        found = ledger.day_view(database, _day(day), time.time())
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    head = ("at", "entry", "job", "attempt", "hours", "usd", "note")
    rows = [
        (
            wording.clock(row.at),
            row.entry,
            str(row.job_id or "–"),
            str(row.attempt or "–"),
            f"{row.seconds / 3600:.4f}",
            f"{row.usd:.4f}",
            row.note,
        )
        for row in found.rows
    ]
    print_table(head, rows)
    note(f"{found.day}: ${found.spent_usd:.2f} spent, {found.used_hours:.2f} lane hours used")


@group.command(context_settings={"ignore_unknown_options": True})  # -1.50 is an amount
def add(
    context: typer.Context,
    usd: Annotated[
        float,
        typer.Argument(
            parser=amount,
            metavar="USD",
            help="US dollars that were spent elsewhere; less than 0 takes back.",
        ),
    ],
    *,
    text: Annotated[str | None, typer.Option("--note", help="For what.")] = None,
    day: Day = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Count money that was spent elsewhere against a day's cap."""
    from worker.budget import ledger  # noqa: PLC0415 - keeps --help light

    raw = {"usd": usd, "note": text, "day": _day(day)}
    with opened(context, data_dir) as database:
        done = ledger.spend_elsewhere(database, raw, actor=who(), now=time.time())
    if as_json:
        print_json(done.model_dump(mode="json"))
    note(f"${done.usd:.2f} counts for {done.day}")


@group.command()
def price(
    context: typer.Context,
    usd_h: Annotated[
        float,
        typer.Argument(
            parser=amount, metavar="USD", help="US dollars that one hour of the lane costs."
        ),
    ],
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Set the price of the lane's hour; it counts from the next drain on."""
    from worker.amounts import dollars  # noqa: PLC0415 - keeps --help light
    from worker.budget.price import set_price  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        done = set_price(database, {"usd_h": usd_h}, actor=who(), now=time.time())
        lane = database.settings.lane
    if as_json:
        print_json({"lane": lane, "usd_h": done.usd_h})
    note(f"an hour of lane {lane} costs {dollars(done.usd_h)}")


def _day(text: str | None) -> datetime.date | None:
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        problem = ConfigProblem("--day", text, "is no date", "write it like 2026-11-21")
        raise ConfigError([problem]) from None
