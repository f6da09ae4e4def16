"""The engine as a child: tied to its supervisor, cut off from its terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadline import eventually
from worker.attempt.runner.base import EngineStartError
from worker.attempt.runner.process import EngineProcess
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import adopt_orphans


def engine(tmp_path: Path, code: str) -> EngineProcess:
    return EngineProcess.start([sys.executable, "-c", code], tmp_path, tmp_path / "engine.log")


def test_the_engine_leads_a_session_of_its_own(tmp_path: Path) -> None:
    """A Ctrl-C on the drain's terminal does not reach it."""
    child = engine(tmp_path, "import time; time.sleep(600)")

    assert os.getsid(child.identity.pid) == child.identity.pid != os.getsid(0)
    assert child.kill() == -signal.SIGKILL


def test_output_and_exit_status_are_kept(tmp_path: Path) -> None:
    """Both streams go to the attempt's log; the run directory is the last argument."""
    child = engine(tmp_path, "import sys; print(sys.argv[1]); sys.exit('no')")

    assert eventually(lambda: child.poll() is not None, "its end", 60)
    assert child.poll() == 1
    assert (tmp_path / "engine.log").read_text().splitlines() == [str(tmp_path), "no"]


def test_an_engine_that_does_not_start_leaves_no_trace_in_its_supervisor(tmp_path: Path) -> None:
    """Nobody who reaps is left the parent of others' orphans."""
    before = adopt_orphans(False)
    try:
        with pytest.raises(EngineStartError, match="No such file or directory"):
            EngineProcess.start([sys.executable], tmp_path, tmp_path / "nowhere" / "engine.log")
        assert not adopt_orphans(False)
    finally:
        adopt_orphans(before)


@pytest.mark.requirement("LN-03")
def test_the_engine_dies_with_its_supervisor(tmp_path: Path) -> None:
    """kill -9 of the supervisor leaves nothing that computes."""
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from worker.attempt.runner.process import EngineProcess\n"
        "root = Path(sys.argv[1])\n"
        "code = 'import sys, time, pathlib; '\n"
        "code += \"pathlib.Path(sys.argv[1], 'up').touch(); time.sleep(600)\"\n"
        "child = EngineProcess.start([sys.executable, '-c', code], root, root / 'log')\n"
        "print(child.identity, flush=True)\n"
        "time.sleep(600)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        child = ProcessIdentity.parse(supervisor.stdout.readline().strip())
    eventually((tmp_path / "up").exists, "the engine's start", 60)

    supervisor.kill()
    supervisor.wait()

    try:
        eventually(lambda: not child.alive(), "the engine's end", 10)
    finally:
        child.kill()
