"""Who decides how a run of several ranks ended, and what is said of it. Ranks are plain scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.contract.events import EventLog, usable
from engine.contract.run_dir import ExitCode, RunDir
from engine.run import launch as launching
from engine.run.launch import CRASHED, LOST, launch

_FAILS = """
from engine.contract.events import EventLog
log = EventLog(pathlib.Path(sys.argv[1], 'attempts/001/events.rank-1.jsonl'), 1)
log.write('note', level='error', code='CRASH', text='OSError: the disk is gone')
log.close()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "run")
    found.attempt(1).root.mkdir(parents=True)
    with_first = EventLog(found.events, 1)
    with_first.write("progress", phase="training", step=3)
    with_first.close()
    return found


def ended(run: RunDir, first: str, second: str) -> int:
    """Exit status of a run whose two ranks do this."""
    code = "import os, pathlib, signal, sys, time\n"
    code += f"if os.environ['RANK'] == '0':\n    {first}\n    sys.exit(0)\n{second}\n"
    return launch(run, run.attempt(1), 2, [sys.executable, "-c", code])


def said(run: RunDir) -> list[str]:
    return [event["text"] for event in usable(run.events) if event["type"] == "note"]


def test_a_run_is_done_when_all_its_ranks_are(run: RunDir) -> None:
    assert ended(run, "pass", "pass") == ExitCode.DONE
    assert said(run) == []


@pytest.mark.requirement("LN-14")
def test_the_error_of_the_rank_that_failed_comes_first(
    run: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others that only lost it say nothing; its own words are the last line of the log."""
    code = ended(run, f"time.sleep(0.3); sys.exit({LOST})", f"{_FAILS}\nsys.exit(1)")

    assert code == CRASHED
    assert said(run) == ["OSError: the disk is gone"]
    assert capfd.readouterr().err.splitlines()[-1] == "rank 1 of 2: OSError: the disk is gone"


@pytest.mark.requirement("LN-14")
def test_ranks_that_wait_for_one_that_was_killed_are_ended(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, not after their own patience."""
    monkeypatch.setattr(launching, "_GRACE_S", 0.2)

    code = ended(run, "time.sleep(600)", "os.kill(os.getpid(), signal.SIGKILL)")

    assert code == CRASHED
    assert said(run) == ["rank 1 of 2 was killed by SIGKILL, and the others were ended with it"]


def test_the_first_rank_has_time_to_seal_a_checkpoint_that_all_agreed_on(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "_GRACE_S", 0.0)

    assert ended(run, "time.sleep(0.5); sys.exit(75)", "sys.exit(75)") == ExitCode.ABORTED
    assert said(run) == []


def test_ranks_that_lost_one_another_end_with_a_word(run: RunDir) -> None:
    assert ended(run, f"sys.exit({LOST})", f"sys.exit({LOST})") == CRASHED
    assert "lost one another" in said(run)[0]
