"""What an engine started and sent away: found by its mark, by its log, by adoption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from engine.sampling.vllm.sync.adapter import MEMORY
from tests.deadline import eventually
from worker.attempt.runner.local import LocalRunner
from worker.attempt.runner.process import EngineProcess
from worker.db.connection import Database
from worker.drain import drain
from worker.lane import cgroup, strays
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import marked
from worker.queue.states import State
from worker.read import jobs
from worker.read.diagnosis import Level, diagnose
from worker.settings import WorkerSettings

STRAY = """
import os, subprocess, sys, time
from pathlib import Path

how, note = sys.argv[1], Path(sys.argv[2])
options = {"start_new_session": True}
if "clear" in how:
    options["env"] = {}
if "silent" in how:
    options |= {"stdin": -3, "stdout": -3, "stderr": -3}
if "fork" in how and os.fork():
    os._exit(0)
if "fork" in how:
    os.setsid()
child = subprocess.Popen(["/bin/sleep", "600"], **options)
note.with_suffix(".part").write_text(str(child.pid))
note.with_suffix(".part").rename(note)
if "fork" in how:
    os._exit(0)
if "stay" in how:
    time.sleep(600)
"""


def engine_with_stray(tmp_path: Path, how: str) -> tuple[EngineProcess, ProcessIdentity]:
    """An engine that sends a process away as `how` says, and that process."""
    note = tmp_path / "stray.pid"
    command = [sys.executable, "-c", STRAY, how, str(note)]
    engine = EngineProcess.start(command, tmp_path, tmp_path / "engine.log")
    eventually(note.exists, "the stray", 60)
    stray = ProcessIdentity.of(int(note.read_text()))
    assert stray is not None
    return engine, stray


@pytest.mark.parametrize(
    "how", ["plain", "fork", "fork clear", "fork silent", "fork clear silent", "stay clear silent"]
)
def test_a_process_that_left_the_group_dies_with_the_attempt(tmp_path: Path, how: str) -> None:
    """Own session, double fork, cleared environment, no output: while the supervisor lives, none
    of it hides a process.
    """
    engine, stray = engine_with_stray(tmp_path, how)
    assert os.getsid(stray.pid) != engine.identity.pid

    if "stay" in how:
        engine.kill()
    else:
        eventually(lambda: engine.poll() is not None, "the engine's end", 60)

    assert not stray.alive()
    with pytest.raises(ChildProcessError):
        os.waitpid(stray.pid, os.WNOHANG)  # reaped: it does not stay as a zombie


SERVING = """
import sys, time
from pathlib import Path
from engine.sampling.vllm.process import ServerProcess

place = Path(sys.argv[1])
server = (
    "import time\\n"
    "from multiprocessing.shared_memory import SharedMemory\\n"
    "memory = SharedMemory(create=True, size=4096)\\n"
    f"open({str(place / 'name')!r}, 'w').write(memory.name)\\n"
    "time.sleep(600)\\n"
)
folder = place / "adapters"
folder.mkdir()
ServerProcess.start(
    [sys.executable, "-c", server],
    stop_cmd=f"touch {place / 'stopped'}", log=place / "serving.log", env={}, folders=[folder],
)
time.sleep(600)
"""


@pytest.mark.requirement("RL-09")
def test_what_cleans_up_after_a_killed_engine_may_end_its_work(tmp_path: Path) -> None:
    """Its server's stop command runs, and neither shared memory nor adapters are left."""
    command = [sys.executable, "-c", SERVING, str(tmp_path)]
    engine = EngineProcess.start(command, tmp_path, tmp_path / "engine.log")
    name = tmp_path / "name"
    eventually(lambda: name.exists() and name.read_text(), "the server", 120)
    memory = MEMORY / name.read_text()
    assert memory.exists()

    engine.kill()

    assert (tmp_path / "stopped").exists()
    assert not memory.exists()
    assert not (tmp_path / "adapters").exists()


def test_a_process_that_loses_its_parent_during_a_look_dies_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine lives while adopted processes are looked for, and is dead when the look ends."""
    engine, stray = engine_with_stray(tmp_path, "stay clear silent")
    adopted = strays._adopted

    def look(own: Collection[ProcessIdentity]) -> list[ProcessIdentity]:
        found = list(adopted(own))
        engine.identity.kill()
        eventually(lambda: not engine.identity.alive(), "the engine's end", 10)
        return found

    monkeypatch.setattr(strays, "_adopted", look)

    engine._end()

    assert not stray.alive()


def test_other_children_of_the_supervisor_are_left_alone(tmp_path: Path) -> None:
    """Only what came from the engine is killed."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        engine, stray = engine_with_stray(tmp_path, "stay")
        engine.kill()

        assert not stray.alive()
        assert other.poll() is None
        other.kill()


KILLED_SUPERVISOR = """
import sys
from pathlib import Path
from worker.attempt.runner.process import EngineProcess
place, note, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
command = [sys.executable, "-c", script, "fork clear silent", note]
engine = EngineProcess.start(command, place, place / "engine.log")
print(engine.identity, flush=True)
sys.stdin.readline()
"""


def test_what_hides_from_a_killed_supervisor_is_held_by_its_group_or_said(
    tmp_path: Path, settings: WorkerSettings
) -> None:
    """Double fork, empty environment, no output, and the supervisor gets a kill -9."""
    note, log = tmp_path / "stray.pid", tmp_path / "engine.log"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_SUPERVISOR, str(tmp_path), str(note), STRAY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        engine = ProcessIdentity.parse(supervisor.stdout.readline().strip())
        eventually(note.exists, "the stray", 60)
        supervisor.kill()
    stray = ProcessIdentity.of(int(note.read_text()))
    assert stray is not None
    assert stray.alive()
    try:
        if cgroup.available() is None:
            found = {one.name: one for one in diagnose(settings)}["control group"]
            assert found.level is Level.NOTE
            return

        strays.end_attempt(engine, log, patience_s=10)

        assert not stray.alive()
        assert cgroup.of(log) is None, "the group is gone too"
    finally:
        stray.kill()


def test_where_no_group_can_be_made_the_other_nets_remain_and_doctor_says_so(
    tmp_path: Path, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unprivileged container: an engine runs all the same."""
    monkeypatch.setattr(cgroup, "_own", lambda: None)

    engine, stray = engine_with_stray(tmp_path, "stay clear silent")
    engine.kill()

    assert not stray.alive()
    assert not cgroup.held(tmp_path / "engine.log")
    found = {one.name: one for one in diagnose(settings)}["control group"]
    assert found.level is Level.NOTE
    assert "outlives a drain that is killed" in found.detail


def test_the_next_drain_says_when_nothing_held_what_a_killed_one_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it starts anything on the lane."""
    run = RunDir(tmp_path)
    run.attempt(1).root.mkdir(parents=True)

    LocalRunner.kill(run, 1, str(ProcessIdentity(ProcessIdentity.current().boot_id, 1, 999)))

    assert "no control group held what this engine started" in caplog.text


FORKS = """
import os, time
if os.fork(): os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""
ADOPTS = """
import os, signal, subprocess, sys
from pathlib import Path
from worker.attempt.runner.process import EngineProcess

def adopts():
    command = [sys.executable, "-c", sys.argv[2]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        orphan = int(child.stdout.readline())
        child.wait()
        parent = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(orphan, signal.SIGKILL)
    return int(parent) == os.getpid()

told = [adopts()]
engine = EngineProcess.start(["sleep"], Path("600"), Path(sys.argv[1]))
told.append(adopts())
engine.kill()
print(told + [adopts()])
"""


def test_orphans_of_others_are_adopted_only_while_an_engine_lives(tmp_path: Path) -> None:
    """What a handed-over lane starts behind it is not this process's child, which nobody reaps."""
    command = [sys.executable, "-c", ADOPTS, str(tmp_path / "engine.log"), FORKS]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)

    assert told.stdout.strip() == "[False, True, False]"


@pytest.mark.parametrize("how", ["fork silent", "fork clear"])
def test_a_stray_is_found_without_its_supervisor(tmp_path: Path, how: str) -> None:
    """By its environment, or by the log that it still writes to."""
    engine, stray = engine_with_stray(tmp_path, how)
    log = tmp_path / "engine.log"

    assert stray in set(marked(log))
    assert not set(marked(tmp_path / "another.log"))
    eventually(lambda: engine.poll() is not None, "the engine's end", 60)
    assert not set(marked(log))


@pytest.mark.requirement("LN-03")
def test_strays_of_a_killed_drain_are_gone_before_the_next_one_takes_the_lane(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """kill -9 of the drain ends the engine at once; what the engine sent away is found by mark."""
    go, note = tmp_path / "go", tmp_path / "stray.pid"
    number = tally(pace=str(go), sends_away=str(note))
    doomed = start_drain()
    eventually(note.exists, "the stray", 60)
    stray = ProcessIdentity.of(int(note.read_text()))
    assert stray is not None
    doomed.signal(signal.SIGKILL)
    doomed.finish()
    assert stray.alive()

    go.touch()
    drain(settings)

    assert not stray.alive()
    assert jobs.get_job(db, number).state is State.SUCCEEDED
