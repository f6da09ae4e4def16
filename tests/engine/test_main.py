"""The engine as a process: exit codes, signals, the sentinel, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.run_dir import ExitCode, RunDir
from engine.rl.rl_run import run as rl_run
from tests.engine.conftest import add_attempt, opened

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]
Start = Callable[..., "subprocess.Popen[str]"]

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 240

KIND = """
import os, signal
from pydantic import BaseModel
from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError, UnfitError
from engine.contract.kind import Kind
from engine.run.stop import Declined, check_abort

class Config(BaseModel, extra="forbid"):
    do: str

class Stale(NightlaneError):
    cause = "STALE_WEIGHTS"

class Lost(NightlaneError):
    cause = "SERVER_LOST"
    retryable = True

def run(attempt):
    match attempt.config.do:
        case "finish":
            return {"answer": 42}
        case "crash":
            raise ZeroDivisionError("by hand")
        case "fail":
            raise NightlaneError("the target was not reached; aim lower")
        case "decline":
            raise Declined("NO_SIGNAL", "nothing is solved; choose easier rows")
        case "stale":
            raise Stale("the weights did not arrive; restart the server")
        case "lost":
            raise Lost("nobody answers; start the server")
        case "unfit":
            raise UnfitError("the model has no eyes; name one that has")
        case "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            check_abort()
        case "wrong config":
            raise ConfigError([ConfigProblem("do", "x", "cannot be", "use y")])

KIND = Kind(name="try_out", summary="For tests.", config=Config, entry="{module}:run")
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the engine on a run directory, from a directory that is not the repository."""
    kinds = tmp_path / "kinds"
    kinds.mkdir()
    module = "engine.contract.kinds.try_out"
    (kinds / "try_out.py").write_text(KIND.replace("{module}", module))
    started: list[subprocess.Popen[str]] = []

    def start_(run: RunDir, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", "run", str(run.root), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=os.environ
            | {"NIGHTLANE_KINDS_PATH": str(kinds), "PYTHONPATH": str(REPOSITORY)}
            | {"HF_HUB_OFFLINE": "1"},
        )
        started.append(process)
        return process

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never saw: {what}"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("do", "code", "note"),
    [
        ("finish", ExitCode.DONE, None),
        ("crash", 1, "CRASH"),
        ("fail", 1, "FAILED"),
        ("decline", ExitCode.DECLINED, "NO_SIGNAL"),
        ("stale", ExitCode.DECLINED, "STALE_WEIGHTS"),
        ("lost", ExitCode.ABORTED, "SERVER_LOST"),
        ("unfit", ExitCode.CONFIG, "CONFIG"),
        ("signal", ExitCode.ABORTED, None),
        ("wrong config", ExitCode.CONFIG, "CONFIG"),
    ],
)
def test_how_an_entry_ends_is_the_exit_code(
    do: str, code: int, note: str | None, start: Start, new_attempt: NewAttempt, events: Events
) -> None:
    """A supervisor reads 0, 75, 76, 78 or a crash, and the reason stands in the events."""
    run = new_attempt({"do": do}, kind="try_out", valid=False)

    process = start(run)
    _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == code
    assert [e["code"] for e in events(run, "note")] == ([note] if note else [])
    assert ("Traceback" in log) == (do == "crash")
    assert len(log.splitlines()) <= 1 or do == "crash"


def test_a_kind_of_the_operators_own_is_one_file(
    start: Start, new_attempt: NewAttempt, events: Events
) -> None:
    """A kind on NIGHTLANE_KINDS_PATH runs here, and what it returns is the final result."""
    run = new_attempt({"do": "finish"}, kind="try_out", valid=False)

    start(run).communicate(timeout=DEADLINE_S)

    [finished] = events(run, "finished")
    assert (finished["status"], finished["result"]) == ("done", {"answer": 42})


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({"do": "finish", "dooo": 1}, "dooo: is not a setting; did you mean do?"),
        ({}, "do: field required; add it"),
    ],
)
def test_a_config_its_kind_refuses_is_one_line_and_exit_78(
    raw: dict[str, Any], line: str, start: Start, new_attempt: NewAttempt
) -> None:
    """Nothing runs, nothing but the note is written, no traceback."""
    run = new_attempt(raw, kind="try_out", valid=False)

    process = start(run)
    _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == ExitCode.CONFIG
    assert log.strip() == line
    assert not run.checkpoints.exists()


@pytest.mark.parametrize("content", [None, "{", '{"version": 2}'])
def test_a_directory_without_a_readable_job_is_one_line_and_exit_78(
    content: str | None, start: Start, tmp_path: Path
) -> None:
    """The path and the remedy, and no file left behind."""
    run = RunDir(tmp_path / "run")
    if content is not None:
        run.attempt(1).root.mkdir(parents=True)
        run.attempt(1).job_file.write_text(content)

    process = start(run)
    _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == ExitCode.CONFIG
    assert len(log.splitlines()) == 1
    assert str(run.root) in log
    assert not run.events.exists()


def test_an_orphan_starts_nothing(start: Start, new_attempt: NewAttempt, events: Events) -> None:
    """The supervisor died between spawn and start: somebody else owns the job by now."""
    run = new_attempt({"do": "finish"}, kind="try_out", valid=False, supervisor_pid=1)

    process = start(run)
    process.communicate(timeout=DEADLINE_S)

    assert process.returncode == ExitCode.ABORTED
    assert events(run, "finished") == []


def test_by_hand_an_attempt_of_a_drain_runs_without_it(
    start: Start, new_attempt: NewAttempt, events: Events
) -> None:
    """As the run page's command starts it; what starts nothing names the option."""
    run = new_attempt({"do": "finish"}, kind="try_out", valid=False, supervisor_pid=1)
    _, log = start(run).communicate(timeout=DEADLINE_S)

    by_hand = start(run, "--by-hand")
    by_hand.communicate(timeout=DEADLINE_S)

    assert "--by-hand starts it without one" in log
    assert by_hand.returncode == ExitCode.DONE
    assert [entry["status"] for entry in events(run, "finished")] == ["done"]


def test_a_signal_becomes_the_sentinel_with_its_reason(
    start: Start, new_attempt: NewAttempt
) -> None:
    """SIGTERM is a request to stop resumably, and the settlement can read who asked."""
    run = new_attempt({"do": "signal"}, kind="try_out", valid=False)

    start(run).communicate(timeout=DEADLINE_S)

    sentinel = run.attempt(1).read_abort()
    assert sentinel is not None
    assert sentinel.reason == "sigterm"


@pytest.mark.requirement("LN-08")
def test_an_operators_touch_stops_a_long_warmup_within_seconds(
    start: Start, new_attempt: NewAttempt, events: Events
) -> None:
    """The sentinel is heard inside a phase that would go on for minutes."""
    run = new_attempt(
        {
            "base": "embedded:qwen3-tiny",
            "tuning": "full",
            "threads": 1,
            "warmup": {"target_heldout": 0.99, "eval_every": 1000},
        }
    )
    process = start(run)
    wait_for(lambda: len(events(run, "metric")) >= 2, "the warm-up")

    run.attempt(1).abort.touch()
    asked = time.monotonic()
    process.communicate(timeout=DEADLINE_S)

    assert process.returncode == ExitCode.ABORTED
    assert time.monotonic() - asked < 15
    assert events(run)[-1]["type"] == "finished"
    assert events(run)[-1]["status"] == "aborted"


def test_killed_in_mid_run_and_started_again_it_ends_as_if_nothing_had_happened(
    start: Start, recipe: dict[str, Any], new_attempt: NewAttempt, events: Events, tmp_path: Path
) -> None:
    """kill -9 loses at most the steps since the last complete checkpoint."""
    recipe |= {"max_steps": 30, "save_every": 3}
    run = new_attempt(recipe, name="killed")
    process = start(run)
    wait_for(lambda: len(events(run, "checkpoint")) >= 4, "four checkpoints")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    new_attempt(recipe, name="killed")

    again = start(run)
    again.communicate(timeout=DEADLINE_S)

    assert process.returncode == -signal.SIGKILL
    assert again.returncode == ExitCode.DONE
    resumed_from = events(run, "started")[1]["resumed_from"]
    assert resumed_from >= 4
    with opened(add_attempt(tmp_path, recipe, name="whole")) as attempt:
        expected = rl_run(attempt)
    result = events(run, "finished")[0]["result"]
    assert result["heldout_scores"] == expected["heldout_scores"]
    assert result["pool_scores"] == expected["pool_scores"]
    assert result["lift_ci95"] == expected["lift_ci95"]
    card = json.loads(run.lineage.read_bytes())
    assert card["current_best"] == expected["lineage_card"]["current_best"]
