"""`cockpit notify`: try the addresses of the morning's digest."""

from __future__ import annotations

import typer

from app.cli.output import note
from app.cli.place import DataDir, worker_settings

group = typer.Typer(help="The morning's digest.", no_args_is_help=True, rich_markup_mode=None)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="notify")


@group.callback()
def _notify() -> None:
    """Keep `test` a command of its own while it is the only one."""


@group.command("test")
def trial(context: typer.Context, *, data_dir: DataDir = None) -> None:
    """Send a trial message to every address of the configuration file."""
    from worker.report.digest import notify_file, send  # noqa: PLC0415 - keeps --help light

    settings = worker_settings(context, data_dir)
    count = send(settings, "Nightlane: a trial message", "The morning's digest will come here.")
    note(f"sent to {count} address{'es' if count != 1 else ''} of {notify_file(settings)}")
