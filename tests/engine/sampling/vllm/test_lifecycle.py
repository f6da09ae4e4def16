"""A serving process lives as long as its run: it is waited for, watched, and always ended.

The programs here are a few lines of Python: what is tested is the process, not what it serves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.sampling.vllm import supervisor
from engine.sampling.vllm.process import ServerProcess
from engine.sampling.vllm.sync.adapter import MEMORY
from tests.deadline import eventually

SLEEPER = """
import os, signal, subprocess, sys, time
{trick}
open({pids!r}, "a").write(f"{{os.getpid()}}\\n")
print("ready", flush=True)
time.sleep(3600)
"""
CORE = 'subprocess.Popen([sys.executable, "-c", {core!r}], start_new_session=True)'
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """A file into which each process writes its number."""
    return tmp_path / "pids"


def command(pids: Path, *, trick: str = "") -> list[str]:
    """A server with an engine core that it sent into a session of its own."""
    core = SLEEPER.format(trick=trick, pids=str(pids))
    server = SLEEPER.format(trick=CORE.format(core=core) + "\n" + trick, pids=str(pids))
    return [sys.executable, "-c", server]


def alive(pids: Path) -> list[int]:
    """Of those that wrote their number, the ones that still live."""
    numbers = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    return [pid for pid in numbers if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


SHARER = """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=4096)
open({names!r}, "w").write(memory.name)
"""


def start(words: list[str], log: Path, stop_cmd: str | None = None) -> ServerProcess:
    return ServerProcess.start(words, stop_cmd=stop_cmd, log=log, env={"SERVED": "yes"})


@pytest.mark.requirement("RL-09")
@pytest.mark.parametrize("trick", ["", STUBBORN], ids=["polite", "deaf to SIGTERM"])
def test_a_stop_leaves_nothing_of_the_server(tmp_path: Path, pids: Path, trick: str) -> None:
    """The engine core too, which left the server's group and session."""
    server = start(command(pids, trick=trick), tmp_path / "log")
    eventually(lambda: len(alive(pids)) == 2, "server and core are up")

    server.stop()

    assert alive(pids) == []
    assert server.poll() is not None


@pytest.mark.requirement("RL-09")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_engine_takes_its_server_along(
    tmp_path: Path, pids: Path, number: signal.Signals
) -> None:
    """Also without a supervisor; its stop command still runs."""
    stopped = tmp_path / "stopped"
    engine = engine_with(command(pids), tmp_path, stop_cmd=f"touch {stopped}")
    try:
        eventually(lambda: len(alive(pids)) == 2, "server and core are up")
        engine.send_signal(number)
        engine.wait()

        eventually(lambda: not alive(pids) and stopped.exists(), "all of it is gone")
    finally:
        engine.kill()


@pytest.mark.requirement("RL-09")
def test_a_killed_engine_leaves_no_shared_memory_and_no_folder(tmp_path: Path, pids: Path) -> None:
    """What its server's processes share, as vLLM's do, and the adapters that it wrote."""
    names, adapters = tmp_path / "names", tmp_path / "adapters"
    adapters.mkdir()
    words = command(pids, trick=SHARER.format(names=str(names)))
    engine = engine_with(words, tmp_path, folders=[adapters])
    try:
        eventually(lambda: len(alive(pids)) == 2 and names.exists(), "server and core are up")
        memory = MEMORY / names.read_text()
        assert memory.exists()

        engine.kill()
        engine.wait()

        eventually(lambda: not (alive(pids) or adapters.exists()), "all of it is gone")
        assert not memory.exists()
    finally:
        engine.kill()


class SlowDeath:
    """A tree of a core that is gone five seconds after its SIGKILL, and a tracker that ends a
    second later; seconds pass where the guardian sleeps.
    """

    CORE, TRACKER = 2_000_000_001, 2_000_000_002

    def __init__(self) -> None:
        self.now = 100.0
        self.killed: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def left(self) -> list[int]:
        core = [self.CORE] if self.now < 105 else []
        return core + ([self.TRACKER] if self.now < 106 else [])


def test_a_tracker_is_not_killed_while_what_it_cleans_up_after_is_still_dying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process of some GB takes seconds to be gone; killed before that, its tracker would leave
    the shared memory. No real process dies slowly at a test's wish.
    """
    tree = SlowDeath()
    monkeypatch.setattr(supervisor, "time", tree)
    monkeypatch.setattr(supervisor, "_descendants", tree.left)
    monkeypatch.setattr(supervisor, "_is_tracker", lambda pid: pid == tree.TRACKER)
    monkeypatch.setattr(os, "kill", lambda pid, _: tree.killed.append(pid))

    with subprocess.Popen(["true"]) as child:
        supervisor._kill_all(child)

    assert set(tree.killed) == {tree.CORE}


def engine_with(
    words: list[str], place: Path, *, stop_cmd: str | None = None, folders: list[Path] | None = None
) -> subprocess.Popen[bytes]:
    """A process of its own that has started this server."""
    left = [str(one) for one in folders or []]
    program = (
        "import time\n"
        "from pathlib import Path\n"
        "from engine.sampling.vllm.process import ServerProcess\n"
        f"ServerProcess.start({words!r}, stop_cmd={stop_cmd!r}, env={{}},\n"
        f"  log=Path({str(place / 'log')!r}), folders=[*map(Path, {left!r})])\n"
        "time.sleep(3600)\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[4])


def test_a_server_that_dies_is_seen_at_once_with_its_last_words(tmp_path: Path) -> None:
    """And what the log held before is not taken for them."""
    log = tmp_path / "serving.log"
    log.write_text("an earlier attempt\n")

    server = start([sys.executable, "-c", "print('no memory left'); raise SystemExit(3)"], log)

    eventually(lambda: server.poll() == 3, "its status")
    assert server.log_tail() == "no memory left"
    server.stop()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """In one line of the log, without a traceback."""
    server = start(["/nowhere/vllm", "serve"], tmp_path / "log")

    eventually(lambda: server.poll() == 127, "its status")
    assert server.log_tail() == "/nowhere/vllm cannot be run: No such file or directory"


def test_a_signals_end_is_told_as_a_shell_tells_it(tmp_path: Path) -> None:
    """137: somebody, or the kernel for want of memory, killed it."""
    words = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    server = start(words, tmp_path / "log")

    eventually(lambda: server.poll() == 137, "its status")


def test_a_command_that_starts_a_server_elsewhere_is_ended_by_the_stop_command(
    tmp_path: Path,
) -> None:
    """As `docker run -d` does: it returns, and only its counterpart reaches what it started."""
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    server = start(["touch", str(started)], tmp_path / "log", f"mv {started} {stopped}")
    eventually(started.exists, "the command ran")

    assert server.poll() is None
    server.stop()

    assert stopped.exists()


def test_a_stop_command_that_fails_keeps_nothing_alive(tmp_path: Path, pids: Path) -> None:
    """It is said in the log, and the processes are ended all the same."""
    server = start(command(pids), tmp_path / "log", "/nowhere/stop it")
    eventually(lambda: len(alive(pids)) == 2, "server and core are up")

    server.stop()

    assert alive(pids) == []
    assert "the stop command failed: " in (tmp_path / "log").read_text()


def test_the_server_gets_the_engines_environment_and_what_was_added(tmp_path: Path) -> None:
    """The mark by which a supervisor finds strays is in it."""
    words = [sys.executable, "-c", "import os; print(os.environ['SERVED'], 'HOME' in os.environ)"]
    server = start(words, tmp_path / "log")

    eventually(lambda: server.poll() == 0, "its status")
    assert server.log_tail() == f"yes {'HOME' in os.environ}"
