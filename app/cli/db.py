"""`cockpit db`: look after the database."""

from __future__ import annotations

import typer

from app.cli.output import print_json
from app.cli.place import AsJson, DataDir, opened

group = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="db")


@group.callback()
def _db() -> None:
    """Keep `upgrade` a command of its own name while it is the only one."""


@group.command()
def upgrade(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Create the database, or bring it forward to this version's tables."""
    from worker.database import known_versions  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        url = database.settings.url
    if as_json:
        print_json({"url": url, "version": known_versions()[-1]})
    else:
        typer.echo(f"{url} has the tables of version {known_versions()[-1]}")
