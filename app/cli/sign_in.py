"""`cockpit open`: a one-time address that signs one browser in.

Whoever may read the data directory may ask for one: its mode (0700) is what proves who they are.
The address is printed and handed to no browser: every user of the machine sees command lines.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.enqueue import who
from app.cli.numbers import within
from app.cli.output import note
from app.cli.place import DataDir, opened

if TYPE_CHECKING:
    from worker.access import Scope
    from worker.db.connection import Database
    from worker.settings import WorkerSettings


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command(name="open")(open_)


def scope_named(given: str) -> Scope:
    """Raises typer.BadParameter."""
    from worker.access import Scope  # noqa: PLC0415 - keeps --help light

    try:
        return Scope(given)
    except ValueError:
        names = ", ".join(Scope)
        raise typer.BadParameter(f"{given[:80]!r} is no scope; choose one of {names}") from None


ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="read, operate or admin; see docs/door.md.")
]


def open_(
    context: typer.Context,
    *,
    scope: ScopeOption = "admin",
    port: Annotated[
        int | None,
        typer.Option(parser=within(1, 65535), metavar="PORT", help="Where the browser finds it."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Print an address that signs one browser in, once. Anybody who has it can open it."""
    wanted = scope_named(scope)
    with opened(context, data_dir) as database:
        base = f"http://127.0.0.1:{port}/" if port else served_at(database.settings)
        typer.echo(entrance(database, base, wanted))
    note("it works once, within 15 minutes; the browser stays signed in for 30 days")


def entrance(database: Database, base: str, scope: Scope) -> str:
    """A fresh one-time address of the cockpit at `base`."""
    from app.web.door import ENTRANCE  # noqa: PLC0415 - the web stack, for this alone
    from worker.access import new_address  # noqa: PLC0415 - keeps --help light

    issued = new_address(database, scope, actor=who(), now=time.time())
    return f"{base.rstrip('/')}{ENTRANCE}{issued.secret}"


def invitation(database: Database, base: str) -> str:
    """How one gets in: an address where no browser is signed in, else the command that makes one.

    What is said reaches a terminal or a pipe; a file or a journal may have other readers.
    """
    from worker.access import Scope, a_browser_is_signed_in  # noqa: PLC0415 - keeps --help light

    if a_browser_is_signed_in(database, now=time.time()) or not _for_its_user_alone():
        return "to sign a browser in: cockpit open"
    return f"sign in, once, within 15 minutes: {entrance(database, base, Scope.ADMIN)}"


def _for_its_user_alone() -> bool:
    try:
        mode = os.fstat(sys.stderr.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or sys.stderr.isatty()


def remember(settings: WorkerSettings, base: str) -> None:
    """Where the cockpit of this data directory listens, for who asks later."""
    _file(settings).write_text(f"{base}\n", "utf-8")


def served_at(settings: WorkerSettings) -> str:
    """Where it listened last, else where it does by default."""
    from app.web.settings import AppSettings  # noqa: PLC0415 - keeps --help light

    try:
        return _file(settings).read_text("utf-8").strip()
    except OSError:
        return f"http://127.0.0.1:{AppSettings().port}/"


def _file(settings: WorkerSettings) -> Path:
    return settings.data_dir / "serve.address"
