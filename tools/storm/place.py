"""The storm's place: a data directory, and the processes that live on it.

Processes are forked from a server that has loaded the product already, or starting them would
cost more than the storm itself; what they run is the real `drain()` and the real `cockpit serve`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx

from engine.contract.errors import NightlaneError
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import MARK
from worker.settings import WorkerSettings

LANE = "storm"
LEASE_S = 0.6
HEARTBEAT_S = 0.1

STOPPED_ITSELF = 41
"""A drain that found its lease lost."""
REFUSED = 42
"""A drain that found the lane held."""

_PATIENCE_S = 60.0


class StormError(NightlaneError):
    """The storm cannot go on: something did not happen in time."""


def prepare(root: Path) -> dict[str, str]:
    """The environment of everything in this storm. Set it before the product is imported."""
    notes = root / "notes"
    notes.mkdir(parents=True)
    return {
        "NIGHTLANE_DATA_DIR": str(root / "data"),
        "NIGHTLANE_LOCK_DIR": str(root / "locks"),
        "NIGHTLANE_KINDS_PATH": str(Path(__file__).parent / "kinds"),
        "NIGHTLANE_LANE": LANE,
        "NIGHTLANE_LEASE_S": str(LEASE_S),
        "NIGHTLANE_HEARTBEAT_S": str(HEARTBEAT_S),
        "NIGHTLANE_POLL_S": "0.02",
        "NIGHTLANE_THROTTLE_S": "0.05",
        "NIGHTLANE_MAX_ATTEMPTS": "100000",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def eventually(look: Callable[[], Any], what: str, within_s: float = _PATIENCE_S) -> Any:
    """The first truthy answer of `look`. Raises StormError."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.005)
    raise StormError(f"not within {within_s:g} s: {what}")


class Victim:
    """A process of the storm."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process

    def send(self, number: signal.Signals) -> None:
        """A signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def ended(self, within_s: float = _PATIENCE_S) -> int:
        """Wait for its end; its exit status. Raises StormError."""
        self._process.join(within_s)
        if self._process.exitcode is None:
            raise StormError(f"process {self.pid} did not end within {within_s:g} s")
        return self._process.exitcode


class Place:
    """Starts processes on one data directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = root / "notes"
        self.settings = WorkerSettings()
        self.port = 0
        self._started: list[Victim] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["worker.drain", "app.cli.serve", "app.main", "uvicorn"]
        )

    def close(self) -> None:
        """Nothing of the storm is left, however it ended."""
        for victim in self._started:
            if victim.alive():
                victim.send(signal.SIGKILL)
                victim.ended()
        for stray in leftovers(self.root):
            stray.kill()

    def drain(self, *, wait: bool = True) -> Victim:
        """A drain, as `cockpit drain --wait` is one."""
        return self._start(_drain, wait)

    def client(self, first: int, acknowledged: Path) -> Victim:
        """A program that enqueues one job after the other and notes each id that it got."""
        return self._start(_client, first, str(self.notes), str(acknowledged))

    def web(self) -> Victim:
        """The cockpit's pages; `url` answers when this returns."""
        log = self.root / "web.log"
        log.unlink(missing_ok=True)
        victim = self._start(_web, str(log), self.port)
        address = eventually(lambda: _address(log), "the web process")
        self.port = int(address.rsplit(":", 1)[1].rstrip("/"))
        return victim

    @property
    def url(self) -> str:
        """Where the web process listens."""
        return f"http://127.0.0.1:{self.port}"

    def _start(self, target: Callable[..., None], *arguments: Any) -> Victim:
        process = self._context.Process(target=target, args=(str(self.root), *arguments))
        process.start()
        self._started.append(Victim(process))
        return self._started[-1]


def leftovers(root: Path) -> Iterator[ProcessIdentity]:
    """Engines and what they started that are still there, by the mark in their environment."""
    data = f"{MARK}={root.resolve()}/".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if any(
                entry.startswith(data) for entry in (folder / "environ").read_bytes().split(b"\0")
            ):
                found = ProcessIdentity.of(int(folder.name))
                if found and found.alive():
                    yield found


def _address(log: Path) -> str | None:
    """What the web process said, once it answers there."""
    if not log.exists():
        return None
    words = [line for line in log.read_text().split() if line.startswith("http://")]
    if not words:
        return None
    try:
        httpx.get(f"{words[0].rstrip('/')}/healthz", trust_env=False, timeout=5)
    except httpx.HTTPError:
        return None
    return words[0]


# --- what runs in the forked processes ---


def _drain(root: str, wait: bool) -> None:
    _detach(Path(root) / "drain.log")
    from worker.drain import drain  # noqa: PLC0415 - loaded in the fork server
    from worker.lane.lease import LaneHeldError, LeaseLostError  # noqa: PLC0415 - as above

    status = 0
    try:
        drain(WorkerSettings(), wait=wait)
    except LeaseLostError:
        status = STOPPED_ITSELF
    except LaneHeldError as error:
        sys.stderr.write(f"process {os.getpid()}: {error}\n")
        status = REFUSED
    except NightlaneError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _client(root: str, first: int, notes: str, acknowledged: str) -> None:
    _detach(Path(root) / "client.log")
    from worker.db.connection import open_database  # noqa: PLC0415 - loaded in the fork server
    from worker.queue.submit import enqueue  # noqa: PLC0415 - as above

    with (
        open_database(WorkerSettings()) as db,
        Path(acknowledged).open("ab", buffering=0) as stream,
    ):
        for number in range(first, first + 1000):
            config = {"seed": number, "notes": notes}
            key, policy = f"key-{number}", "wait"
            job_id = enqueue(db, "squall", config, actor="storm", key=key, if_parent_fails=policy)
            stream.write(f"{number} {job_id}\n".encode())


def _web(_root: str, log: str, port: int) -> None:
    _detach(Path(log))
    from app.cli.app import main  # noqa: PLC0415 - loaded in the fork server

    sys.argv = ["cockpit", "serve", "--port", str(port)]
    main()


def _detach(log: Path) -> None:
    """Own session, output to a file: as the product starts them."""
    os.setsid()
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
