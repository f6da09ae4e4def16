"""`cockpit serve`: the board on 127.0.0.1."""

from __future__ import annotations

import gc
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from app.cli.numbers import within
from app.cli.output import note
from app.cli.place import DataDir, worker_settings
from app.cli.sign_in import invitation, remember
from engine.contract.errors import NightlaneError

if TYPE_CHECKING:
    from app.web.settings import AppSettings
    from worker.db.connection import Database
    from worker.schedule.policy import Standing

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


class SocketRefusedError(NightlaneError):
    """No socket can be made there."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"socket: {path} cannot be used: {reason}; choose another with --socket")


UNLOCKED = (
    "NO SIGN-IN (--no-auth): every user of this machine can read all answers and queue jobs that "
    "run as you"
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
    unix_socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="A Unix socket instead of a port: only you can open it, and nobody signs in.",
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Let every user of this machine in, as you.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Serve the board until Ctrl-C. Prints its address. Stopping it stops no run."""
    import uvicorn  # noqa: PLC0415 - the web stack, for this command alone

    from app.main import create_app  # noqa: PLC0415 - the web stack, for this command alone
    from app.web.protocol import BoundedHead  # noqa: PLC0415 - the web stack, for this command
    from app.web.settings import AppSettings, require_loopback  # noqa: PLC0415 - keeps --help light
    from worker.db.connection import open_database  # noqa: PLC0415 - keeps --help light
    from worker.private import keep_private, require_private  # noqa: PLC0415 - keeps --help light
    from worker.schedule.policy import standing  # noqa: PLC0415 - keeps --help light

    keep_private()
    given = {"host": host, "port": port, "socket": unix_socket, "auth": False if no_auth else None}
    told = {name: value for name, value in given.items() if value is not None}
    settings = AppSettings.model_validate(told)
    require_loopback(settings.host)
    place = worker_settings(context, data_dir)
    with open_database(place) as database:  # what is wrong with it is said before anything listens
        armed = standing(database)
        require_private(place.data_dir)
        listener = _listen(settings)
        config = uvicorn.Config(
            create_app(settings, place, commands_of(context.find_root().command)),
            http=BoundedHead,
            log_level="warning",
            access_log=False,  # its lines would hold one-time addresses
            proxy_headers=False,  # nobody says of themselves where they connect from
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
        typer.echo(_url(listener))
        _welcome(database, settings, listener, armed)
    # What stands now stands to the end: a collector that goes through all of it holds up a page.
    gc.collect()
    gc.freeze()
    with listener:
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            note("the board is down")


def _welcome(
    database: Database, settings: AppSettings, listener: socket.socket, armed: Standing | None
) -> None:
    """How one gets in, and what the lane does by itself."""
    from worker.amounts import exact  # noqa: PLC0415 - keeps --help light

    note("the board is up; Ctrl-C stops the page, never a run")
    if settings.unlocked:
        note(UNLOCKED)
    if settings.locked:
        remember(database.settings, _url(listener))
        note(invitation(database, _url(listener)))
    if armed and armed.armed:
        note(f"armed: a tick every {exact(armed.interval_min)} min starts what is queued")


def _listen(settings: AppSettings) -> socket.socket:
    """Raises PortInUseError, SocketRefusedError."""
    if settings.socket is not None:
        return _listen_at(settings.socket)
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


def _listen_at(path: Path) -> socket.socket:
    """A socket of mode 0600; one that a cockpit left when it was killed is put away.

    Raises SocketRefusedError.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _put_away(path)
        listener.bind(str(path))  # nobody else's from the beginning: the umask is 077
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        listener.listen()
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise SocketRefusedError(path, reason) from error
    return listener


def _put_away(path: Path) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def _url(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
