"""The sentry as a process: it kills first, writes afterwards, and outlives its supervisor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import Abort, AbortReason, AttemptDir
from tests.deadline import eventually
from tests.worker.memory.shortage import TOTAL_GB, write_meminfo
from worker.memory.guard import MemoryGuard
from worker.memory.readings import HostMemory
from worker.memory.rule import limits
from worker.memory.sentry import DECISIONS, Plan, Sentry
from worker.settings import WorkerSettings

CHURN = """
import sys
block = b"x" * (4 << 20)
print("up", flush=True)
for _ in range(6):
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(100):
            file.write(block)
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(len(block)):
            pass
"""
ENGINE = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
FILLER = """
import os, sys
file = os.memfd_create("filler")
block = b"x" * (8 << 20)
print("up", flush=True)
for _ in range(int(sys.argv[1])):
    os.write(file, block)
print("full", flush=True)
sys.stdin.read()
"""


class Guarded:
    """A machine of a file, an engine that leads its group, and a guard over both."""

    def __init__(self, settings: WorkerSettings, tmp_path: Path) -> None:
        self.meminfo = tmp_path / "meminfo"
        self.attempt = AttemptDir(tmp_path / "001")
        self.attempt.root.mkdir()
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.settings = settings.model_copy(update={"meminfo": self.meminfo})
        self.children: list[subprocess.Popen[str]] = []
        self.guard: MemoryGuard | None = None
        self.free(8.5)

    def free(self, gb: float) -> None:
        write_meminfo(self.meminfo, total_gb=TOTAL_GB, free_gb=gb)

    def start(self, program: str = ENGINE, *arguments: str, **changes: Any) -> MemoryGuard:
        """The sentry first, then the engine, as a supervisor does."""
        settings = self.settings.model_copy(update=changes)
        self.guard = MemoryGuard(settings, self.attempt)
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        self.guard.guard(child.pid)
        return self.guard

    def plan(self) -> Plan:
        """What a sentry over this machine is told."""
        return Plan(
            attempt=str(self.attempt.root),
            limits=limits(self.settings, TOTAL_GB),
            meminfo=str(self.meminfo),
            total_gb=None,
            device=None,
            device_floor_gb=0.0,
            fastest_file=str(self.settings.data_dir / "fastest_fall.json"),
        )

    @property
    def decisions(self) -> list[dict[str, Any]]:
        path = self.attempt.root / DECISIONS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()
        if self.guard is not None:
            self.guard.close()


@pytest.fixture
def box(settings: WorkerSettings, tmp_path: Path) -> Iterator[Guarded]:
    """Closed whatever happens."""
    guarded = Guarded(settings, tmp_path)
    yield guarded
    guarded.close()


@pytest.mark.requirement("LN-07")
def test_a_kill_is_written_down_when_the_supervisor_reaps_the_engine_at_once(
    box: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the signal to the engine and that to its group the group may be gone already."""
    engine = subprocess.Popen([sys.executable, "-c", ENGINE], start_new_session=True)
    send = signal.pidfd_send_signal

    def send_and_reap(pidfd: int, number: signal.Signals) -> None:
        send(pidfd, number)
        engine.wait()

    monkeypatch.setattr(signal, "pidfd_send_signal", send_and_reap)
    sentry = Sentry(box.plan())
    sentry._take_over(engine.pid)

    box.free(1.5)
    sentry._look(0.0)

    assert [decision["action"] for decision in box.decisions] == ["kill"]


@pytest.mark.requirement("LN-07")
def test_the_hard_floor_kills_the_whole_group_and_says_why(box: Guarded) -> None:
    """SIGKILL, the sentinel for the settlement, and one line with reading, rule, action, step."""
    guard = box.start()
    guard.look("training", 7)
    box.free(1.5)

    status = box.children[0].wait(30)
    decision = eventually(lambda: box.decisions, "a written decision")[-1]

    assert status == -signal.SIGKILL
    assert (decision["action"], decision["rule"]) == ("kill", "hard_floor")
    assert (decision["phase"], decision["step"], decision["free_gb"]) == ("training", 7, 1.5)
    abort = box.attempt.read_abort()
    assert abort is not None
    assert (abort.reason, abort.headroom_gb) == (AbortReason.MEMORY, 1.5)
    guard.look("training", 7)
    assert guard.killed


@pytest.mark.requirement("LN-07")
def test_the_floor_asks_for_a_checkpoint_and_goes_on_watching(box: Guarded) -> None:
    """The engine lives on after the sentinel, until it too reaches the hard floor."""
    guard = box.start()
    box.free(3.5)

    eventually(box.attempt.abort.exists, "the sentinel")
    assert box.children[0].poll() is None
    assert [d["rule"] for d in box.decisions][-1] == "floor_held"
    box.free(1.0)
    box.children[0].wait(30)

    eventually(lambda: box.decisions[-1]["action"] == "kill", "the kill in the record")
    abort = box.attempt.read_abort()
    assert abort is not None
    assert abort.floor_gb == 4.0, "the first request stands"
    guard.look(None)
    assert guard.killed


@pytest.mark.requirement("LN-07")
def test_an_earlier_request_keeps_its_reason(box: Guarded) -> None:
    """A cancelled run that is killed for memory stays cancelled."""
    box.start()
    box.attempt.request_abort(Abort(reason=AbortReason.CANCEL))

    box.free(1.0)
    box.children[0].wait(30)

    eventually(lambda: box.decisions, "a written decision")
    abort = box.attempt.read_abort()
    assert abort is not None
    assert abort.reason is AbortReason.CANCEL


@pytest.mark.requirement("LN-07")
def test_a_dead_sentry_is_replaced(box: Guarded) -> None:
    """The engine is guarded again, by a process that knows it."""
    guard = box.start()
    dead = guard._sentry
    dead.kill()
    dead.wait()

    guard.look("training", 1)
    box.free(1.0)

    assert box.children[0].wait(30) == -signal.SIGKILL
    assert guard._sentry is not dead


@pytest.mark.requirement("LN-07")
def test_the_sentry_outlives_its_supervisor_as_long_as_the_engine(box: Guarded) -> None:
    """A stopped or dead supervisor leaves the machine guarded; then the sentry ends by itself."""
    guard = box.start()
    sentry = guard._sentry
    assert sentry.stdin is not None
    sentry.stdin.close()

    box.free(1.0)

    assert box.children[0].wait(30) == -signal.SIGKILL
    assert sentry.wait(30) == 0


@pytest.mark.requirement("LN-07")
def test_memory_that_no_process_shows_is_seen(box: Guarded) -> None:
    """A filler keeps its pages in a memfd: its resident size stays small, the machine's shrinks."""
    host = HostMemory()
    free, total = host.available_gb(), host.total_gb()
    assert free is not None
    assert total is not None
    pool = 1.6
    guard = box.start(
        FILLER,
        "1200",  # 10 GB, were it let: more than another test gives back meanwhile
        meminfo=Path("/proc/meminfo"),
        memory_total_gb=total - free + pool,
        oom_warn_gb=0.8,
        oom_floor_gb=0.4,
    )

    status = box.children[0].wait(60)
    decision = eventually(lambda: box.decisions, "a written decision")[-1]

    assert status == -signal.SIGKILL
    assert decision["action"] == "kill"
    assert decision["free_gb"] < pool, "seen while it went, not by its absence"
    guard.look(None)
    assert guard.killed


@pytest.mark.requirement("LN-07")
def test_page_cache_is_no_shortage(box: Guarded, tmp_path: Path) -> None:
    """Files written and read over and over fill memory that the kernel gives back at once."""
    host = HostMemory()
    free, total = host.available_gb(), host.total_gb()
    assert free is not None
    assert total is not None
    box.start(
        CHURN,
        str(tmp_path / "file"),
        meminfo=Path("/proc/meminfo"),
        memory_total_gb=total - free + 3.0,
        oom_warn_gb=0.6,
        oom_floor_gb=0.3,
    )

    assert box.children[0].wait(120) == 0
    assert box.decisions == []


@pytest.mark.requirement("LN-07")
def test_the_fastest_fall_of_a_box_is_remembered(box: Guarded, settings: WorkerSettings) -> None:
    """The next sentry looks as often as that fall asks for."""
    box.free(90.0)
    guard = box.start()
    eventually(lambda: _least(guard) == 90.0, "a high reading")
    box.free(40.0)
    eventually(lambda: _least(guard) == 40.0, "a low reading")
    box.children[0].kill()
    box.children[0].wait()
    guard.close()
    box.guard = None

    known = json.loads((settings.data_dir / "fastest_fall.json").read_text())["gb_s"]

    assert known > 40


def _least(guard: MemoryGuard) -> float:
    guard.look(None)
    assert guard._trace is not None
    return guard._trace.min_headroom_gb
