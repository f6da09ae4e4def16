"""`cockpit db`: look after the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import print_json
from app.cli.place import AsJson, DataDir, opened, worker_settings

group = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="db")


@group.command()
def upgrade(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Create the database, or bring it forward to this version's tables."""
    from worker.db.connection import url_of  # noqa: PLC0415 - keeps --help light
    from worker.db.migrations import known_versions  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        url = url_of(database.settings).render_as_string()
    if as_json:
        print_json({"url": url, "version": known_versions()[-1]})
    else:
        typer.echo(f"{url} has the tables of version {known_versions()[-1]}")


@group.command()
def backup(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.")],
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Copy the database to FILE, also while jobs run. The run directories are not in it."""
    from worker.db.backup import backup as run  # noqa: PLC0415 - keeps --help light

    size = run(worker_settings(context, data_dir), target)
    if as_json:
        print_json({"file": str(target), "bytes": size})
    else:
        typer.echo(f"{target} holds the database ({size / 1e6:.1f} MB)")


@group.command()
def restore(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A copy made by `backup`.")],
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Put a copy where the database was. Refused while anything of the old one is there."""
    from worker.db.backup import restore as run  # noqa: PLC0415 - keeps --help light
    from worker.lane.machine_lock import drains_of_data  # noqa: PLC0415 - keeps --help light

    settings = worker_settings(context, data_dir)
    target = run(settings, source, drains=drains_of_data(settings))
    if as_json:
        print_json({"file": str(target)})
    else:
        typer.echo(f"{target} is what {source} holds; the next drain settles what ran then")
