"""The run directory: sentinel, job.json and complete checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.run_dir import (
    Abort,
    AbortReason,
    AttemptDir,
    RunDir,
    RunDirError,
    complete_checkpoints,
    write_json,
)


def _attempt(tmp_path: Path) -> AttemptDir:
    attempt = RunDir(tmp_path).attempt(1)
    attempt.root.mkdir(parents=True)
    return attempt


def test_an_operators_touch_is_a_complete_request_to_stop(tmp_path: Path) -> None:
    """Nobody should have to write JSON at three in the morning."""
    attempt = _attempt(tmp_path)

    attempt.abort.touch()

    assert attempt.read_abort() == Abort(reason=AbortReason.OPERATOR)


@given(garbage=st.binary(max_size=64))
def test_whatever_stands_in_the_sentinel_means_stop(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    """A sentinel that cannot be parsed is still a request."""
    attempt = _attempt(tmp_path_factory.mktemp("run"))
    attempt.abort.write_bytes(garbage)

    assert attempt.read_abort() is not None


def test_the_first_reason_to_stop_wins(tmp_path: Path) -> None:
    """A cancel must not turn into a budget brake because both came."""
    attempt = _attempt(tmp_path)

    wrote = [attempt.request_abort(Abort(reason=reason)) for reason in ("cancel", "budget")]

    assert wrote == [True, False]
    stands = attempt.read_abort()
    assert stands
    assert stands.reason is AbortReason.CANCEL
    assert [entry.name for entry in attempt.root.iterdir()] == ["abort"]


def test_a_stale_sentinel_is_filed_away_and_kept(tmp_path: Path) -> None:
    """An old request must not stop a new attempt, and stays as evidence."""
    attempt = _attempt(tmp_path)
    attempt.abort.touch()

    filed = attempt.file_away_abort()

    assert attempt.read_abort() is None
    assert filed
    assert filed.exists()


def test_a_checkpoint_without_its_marker_does_not_exist(tmp_path: Path) -> None:
    """The marker is written last, so its absence means an unfinished write."""
    run = RunDir(tmp_path)
    for step in (0, 10, 20):
        run.checkpoint(step).mkdir(parents=True)
    for step in (0, 10):
        write_json(run.checkpoint(step) / "complete.json", {"step": step, "files": {}})

    assert [step for step, _ in complete_checkpoints(run)] == [0, 10]


def test_only_an_attempt_with_a_job_file_counts(tmp_path: Path) -> None:
    """A supervisor that died while preparing an attempt left no attempt."""
    run = RunDir(tmp_path)
    for number in (1, 2):
        run.attempt(number).root.mkdir(parents=True)
    write_json(run.attempt(1).job_file, {})

    assert run.latest_attempt() == 1


def test_a_job_file_of_another_shape_is_named_with_its_field(tmp_path: Path) -> None:
    """The engine says which file and which field, not a traceback."""
    attempt = _attempt(tmp_path)
    write_json(attempt.job_file, {"version": 1, "job_id": "x"})

    with pytest.raises(RunDirError, match=r"job\.json: job_id: "):
        attempt.read_job()
