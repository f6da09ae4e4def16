"""The memory guard: limits, patience, and what a stop for memory leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.contract.run_dir import AbortReason, RunDir
from worker.attempt import memory
from worker.database import Database
from worker.drain import drain
from worker.jobs import views
from worker.jobs.states import State
from worker.lane.mem_trace import MemTrace, mem_trace_of
from worker.lane.watchdog import (
    Limits,
    MemoryWatchdog,
    available_gb,
    limits,
    total_gb,
)
from worker.settings import WorkerSettings


def levels(samples: Sequence[float | None]) -> list[str]:
    """What a watchdog with the seed's limits says to each sample."""
    source = iter(samples)
    watchdog = MemoryWatchdog(lambda: next(source), warn_gb=8, floor_gb=4)
    return [watchdog.check().level for _ in samples]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([9, 8, 7.9, 4], ["ok", "ok", "warn", "warn"]),
        ([3.9, 3.9, 3.9, 3.9, 3.9], ["warn", "warn", "warn", "trip", "trip"]),
        ([3, 3, 3, 5, 3, 3, 3, 3], ["warn"] * 7 + ["trip"]),
        ([3, 3, 3, None, 3, 3, 3], ["warn"] * 3 + ["ok"] + ["warn"] * 3),
        ([None] * 9, ["ok"] * 9),
    ],
    ids=["warns", "trips-on-the-fourth", "a-spike", "a-missing-sample", "no-sample"],
)
def test_only_a_breach_that_holds_trips(
    samples: Sequence[float | None], expected: Sequence[str]
) -> None:
    """Four samples in a row under the floor; a missing sample never trips."""
    assert levels(samples) == expected


@pytest.mark.parametrize(
    ("total", "expected"),
    [(128, Limits(8, 4)), (64, Limits(8, 4)), (25, Limits(4, 2)), (0, Limits(0, 0))],
)
def test_the_limits_shrink_with_a_small_box(
    settings: WorkerSettings, total: float, expected: Limits
) -> None:
    """8 % and 16 % under 64 GB; a box that does not tell its size never trips."""
    assert limits(settings, total) == expected


@pytest.mark.parametrize("prefix", ["FK_RL_", "NIGHTLANE_"])
def test_the_limits_are_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """By the seed's names and by ours."""
    monkeypatch.setenv(f"{prefix}OOM_FLOOR_GB", "5")
    monkeypatch.setenv(f"{prefix}OOM_WARN_GB", "10")

    assert limits(WorkerSettings(), total=128) == Limits(10, 5)


def test_the_reader_tells_what_the_kernel_tells() -> None:
    """MemAvailable and MemTotal, in GB of 10⁹ bytes."""
    free, total = available_gb(), total_gb()

    assert free is not None
    assert total is not None
    assert 0 < free < total


def test_memory_at_the_floor_stops_the_run_with_its_evidence(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sentinel with reason, headroom and floor → checkpoint → queued once more → aborted."""
    monkeypatch.setattr(memory, "SAMPLE_S", 0.01)
    monkeypatch.setattr(memory, "total_gb", lambda: 100.0)
    number = tally(pace=str(tmp_path / "go"), steps=9)
    run = RunDir(views.get_job(db, number).run_dir)

    def free() -> float:
        """Plenty until the first step of the attempt is counted."""
        attempt = views.get_job(db, number).attempt
        return 3.5 if run.checkpoint(attempt).exists() else 60.0

    report = drain(settings, free_memory=free)

    assert [(settled.state, settled.cause) for settled in report.ran] == [
        (State.QUEUED, None),
        (State.ABORTED, "MEMORY"),
    ]
    abort = run.attempt(1).read_abort()
    assert abort is not None
    assert (abort.reason, abort.headroom_gb, abort.floor_gb) == (AbortReason.MEMORY, 3.5, 4.0)
    assert abort.tripped_at is not None
    trace = views.get_job(db, number).result["mem_trace"]
    assert trace["phase_used_gb"] == {"training": 96.5}
    assert {key: trace[key] for key in trace if key != "phase_used_gb"} == {
        "total_gb": 100.0,
        "headroom_at_spawn_gb": 60.0,
        "peak_used_gb": 96.5,
        "min_headroom_gb": 3.5,
        "abort_headroom_gb": 3.5,
        "oom_deferred": 2,
        "display": "peak 96.5 of 100.0 GB, 3.5 GB left at least, 2 times stopped for memory",
    }


def test_a_memory_trace_covers_all_attempts(tmp_path: Path) -> None:
    """The peak of any, the start of the first; a torn file is left out."""
    run = RunDir(tmp_path)
    for number, (spawn, seen) in enumerate([(20.0, 12.0), (18.0, 15.0)], 1):
        trace = MemTrace.at_spawn(24.0, spawn)
        trace.saw(seen, "training")
        trace.write(run.attempt(number).root)
    torn = run.attempt(3).root
    torn.mkdir()
    (torn / "mem_trace.json").write_text('{"total_gb"')

    found = mem_trace_of(run)

    assert found is not None
    assert (found["headroom_at_spawn_gb"], found["peak_used_gb"], found["min_headroom_gb"]) == (
        20.0,
        12.0,
        12.0,
    )
    assert found["oom_deferred"] == 0
    assert mem_trace_of(RunDir(tmp_path / "nothing")) is None
