"""A PostgreSQL server of the tests' own: Debian's programs, a temporary directory, no network."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.deadline import eventually


class PostgresServer:
    """A running server; each test makes a database in it."""

    def __init__(self, programs: Path, sockets: Path, user: str) -> None:
        self._programs = programs
        self._sockets = sockets
        self._user = user
        self._numbers = count(1)

    def new_database(self) -> str:
        """An empty database; returns its SQLAlchemy URL."""
        name = f"nightlane_{os.getpid()}_{next(self._numbers)}"
        self.run("createdb", name)
        return f"postgresql://{self._user}@/{name}?host={self._sockets}"

    def ready(self) -> bool:
        """Whether it answers."""
        command = [str(self._programs / "pg_isready"), "-q", "-h", str(self._sockets)]
        return subprocess.run(command, check=False).returncode == 0

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs on this server; returns what it printed."""
        place = ["-h", str(self._sockets), "-U", self._user]
        command = [str(self._programs / program), *place, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Start a server, and end it by its process id. It refuses to run as root, so root lends it
    another user. `durable`: commits are synced to disk, and the settings are its own; else it is
    as quick as what is thrown away may be.
    """
    programs = _programs()
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    root = Path(tempfile.mkdtemp(prefix="nlpg-", dir="/tmp"))  # a socket's path is short
    try:
        if os.getuid() == 0:
            shutil.chown(root, user)
        root.chmod(0o755)
        data = root / "data"
        options = ["-D", str(data), "-U", user, "-A", "trust", "-E", "UTF8", "--locale", "C", "-N"]
        subprocess.run(
            [str(programs / "initdb"), *options],
            check=True,
            capture_output=True,
            cwd="/",
            user=_lent(user),
        )
        with _running(programs, user, data, root, {} if durable else _THROWN_AWAY) as server:
            eventually(server.ready, "the PostgreSQL server")
            yield server
    finally:
        shutil.rmtree(root)


_THROWN_AWAY = {"fsync": "off", "shared_buffers": "16MB", "autovacuum": "off"}


@contextmanager
def _running(
    programs: Path, user: str, data: Path, sockets: Path, tuning: Mapping[str, str]
) -> Iterator[PostgresServer]:
    settings = {"listen_addresses": "", "unix_socket_directories": str(sockets), **tuning}
    chosen = [f"--{name}={value}" for name, value in settings.items()]
    with (sockets / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *chosen],
            stdout=log,
            stderr=log,
            user=_lent(user),
        )
    try:
        yield PostgresServer(programs, sockets, user)
    finally:
        process.send_signal(signal.SIGINT)  # fast shutdown: connections are cut
        process.wait(30)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise RuntimeError("PostgreSQL's server is not installed; run: make system")
    return found[-1].parent


def _lent(user: str) -> str | None:
    """Whom to run as: nobody else, unless this is root."""
    return user if os.getuid() == 0 else None
