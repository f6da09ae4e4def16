"""`cockpit serve`: the board on 127.0.0.1."""

from __future__ import annotations

import gc
import socket
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from app.cli.numbers import within
from app.cli.output import note
from app.cli.place import DataDir, worker_settings
from engine.contract.errors import NightlaneError

if TYPE_CHECKING:
    from app.web.settings import AppSettings

GRACE_S = 2
"""How long open requests may take once the process is asked to stop."""


class PortInUseError(NightlaneError):
    """Another program listens there."""

    retryable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"port: {host}:{port} cannot be used: {reason}; choose another with --port"
        )


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(serve)


def commands_of(root: object) -> list[tuple[str, str]]:
    """Each command of the command line by name, with the first sentence of its help."""
    commands = root.commands if isinstance(root, TyperGroup) else {}
    return sorted(
        (name, (command.help or "").strip().partition("\n")[0])
        for name, command in commands.items()
        if not command.hidden
    )


def serve(
    context: typer.Context,
    *,
    host: Annotated[str | None, typer.Option(help="Loopback address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option(parser=within(0, 65535), metavar="PORT", help="Port; 0 takes any free one."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Serve the board until Ctrl-C. Prints its address. Stopping it stops no run."""
    import uvicorn  # noqa: PLC0415 - the web stack, for this command alone

    from app.main import create_app  # noqa: PLC0415 - the web stack, for this command alone
    from app.web.protocol import BoundedHead  # noqa: PLC0415 - the web stack, for this command
    from app.web.settings import AppSettings, require_loopback  # noqa: PLC0415 - keeps --help light
    from worker.amounts import exact  # noqa: PLC0415 - keeps --help light
    from worker.db.connection import open_database  # noqa: PLC0415 - keeps --help light
    from worker.private import keep_private  # noqa: PLC0415 - keeps --help light
    from worker.schedule.policy import standing  # noqa: PLC0415 - keeps --help light

    keep_private()
    settings = AppSettings()
    if host is not None:
        settings = settings.model_copy(update={"host": host})
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    require_loopback(settings.host)
    place = worker_settings(context, data_dir)
    with open_database(place) as database:  # what is wrong with it is said before anything listens
        armed = standing(database)
    listener = _listen(settings)
    config = uvicorn.Config(
        create_app(settings, place, commands_of(context.find_root().command)),
        http=BoundedHead,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )
    typer.echo(_url(listener))
    note("the board is up; Ctrl-C stops the page, never a run")
    if armed and armed.armed:
        note(f"armed: a tick every {exact(armed.interval_min)} min starts what is queued")
    # What stands now stands to the end: a collector that goes through all of it holds up a page.
    gc.collect()
    gc.freeze()
    with listener:
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            note("the board is down")


def _listen(settings: AppSettings) -> socket.socket:
    """Raises PortInUseError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off: else the second half of an
    # answer waits 40 ms for the acknowledgement of the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise PortInUseError(settings.host, settings.port, reason.lower()) from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
