"""Where a command works: `--data-dir` before or behind its name, else the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.settings import WorkerSettings


def _directory(given: str) -> Path:
    """An empty name would be the directory that the command happens to run in."""
    if not given:
        raise typer.BadParameter("it is empty; name a directory, or leave the option out")
    if Path(given).is_file():
        raise typer.BadParameter(f"{given} is a file; name a directory")
    return Path(given)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIRECTORY",
        parser=_directory,
        help="Where database and runs live; else NIGHTLANE_DATA_DIR, else ~/.nightlane.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]


def worker_settings(context: typer.Context, data_dir: Path | None) -> WorkerSettings:
    """The worker's settings at the place that was chosen."""
    from worker.settings import WorkerSettings  # noqa: PLC0415 - keeps --help light

    chosen = data_dir or context.obj
    return WorkerSettings(data_dir=chosen) if chosen else WorkerSettings()


@contextmanager
def opened(
    context: typer.Context, data_dir: Path | None, *, urgent: bool = False
) -> Iterator[Database]:
    """The database there, created or migrated where needed; times are told in its lane's zone.

    `urgent`: for what frees room on a full disk, or ends what takes it.
    """
    from app.text import wording  # noqa: PLC0415 - keeps --help light
    from app.text.zones import Zones  # noqa: PLC0415
    from worker.budget.price import take_price  # noqa: PLC0415
    from worker.db.connection import open_database  # noqa: PLC0415

    with open_database(worker_settings(context, data_dir), urgent=urgent) as database:
        take_price(database)
        # Commands print what they read after this block too: until they end.
        context.with_resource(wording.times_in(Zones(database).now()))
        yield database
