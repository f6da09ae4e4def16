"""The memory watchdog: its rule, and what a stop for memory leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from engine.contract.run_dir import AbortReason, RunDir, write_json
from tests.worker.memory.shortage import Shortage
from worker.db.connection import Database
from worker.memory.rule import (
    FAR_S,
    FIRST_GUESS_GB_S,
    HOLD_S,
    NEAR_S,
    SHORTEST_S,
    Action,
    Limits,
    Rule,
    Watchdog,
    limits,
)
from worker.memory.trace import MemTrace, mem_trace_of, memory_points
from worker.queue.states import State
from worker.read import jobs
from worker.settings import WorkerSettings

SEED = Limits(8, 4, 2)


def actions(samples: Sequence[float | None], every_s: float = 0.5) -> list[str]:
    """What a watchdog with the seed's limits says to samples that come at a steady pace."""
    watchdog = Watchdog(SEED)
    return [watchdog.look(n * every_s, free).action.value for n, free in enumerate(samples)]


@pytest.mark.requirement("LN-07")
@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([9, 8, 7.9, 7.8], ["none", "none", "warn", "warn"]),
        ([3.9] * 6, ["warn"] * 4 + ["stop", "stop"]),
        ([3.9, 3.9, 3.9, 4.1, 3.9, 3.9, 3.9, 3.9, 3.9], ["warn"] * 8 + ["stop"]),
        ([3.9, 3.9, 3.9, None, 3.9, 3.9, 3.9, 3.9], ["warn"] * 3 + ["none"] + ["warn"] * 4),
        ([None] * 9, ["none"] * 9),
        ([9, 9, 1.9], ["none", "none", "kill"]),
    ],
    ids=["warns", "stops-after-2-s", "a-spike", "a-missing-sample", "no-sample", "hard-floor"],
)
def test_a_level_leads_to_its_action(
    samples: Sequence[float | None], expected: Sequence[str]
) -> None:
    """Warn at once, stop after two seconds in a row, kill at once; a missing sample never trips."""
    assert actions(samples) == expected


@pytest.mark.requirement("LN-07")
def test_a_fall_that_reaches_the_hard_floor_within_a_second_kills() -> None:
    """Seen twice, because one large allocation looks like a fall at the first look only."""
    falling = Watchdog(SEED)
    one_allocation = Watchdog(SEED)

    fast = [falling.look(n * 0.1, 20.0 - max(0, n - 3) * 1.2) for n in range(14)]
    once = [one_allocation.look(n * 0.1, 20.0 if n < 3 else 9.0) for n in range(14)]

    killed = next(n for n, decision in enumerate(fast) if decision.action is Action.KILL)
    assert fast[killed].rule is Rule.PROJECTED
    assert 20.0 - (killed - 3) * 1.2 > 3 * SEED.hard_gb, "while there is still a lot"
    assert {decision.action for decision in once} == {Action.NONE}


@pytest.mark.requirement("LN-07")
@pytest.mark.parametrize("since_the_last_look", [0.001, 0.02, 0.3])
def test_one_large_allocation_is_no_fall(since_the_last_look: float) -> None:
    """However short a time before the last look was."""
    watchdog = Watchdog(SEED)
    looks = [(0.0, 20.0), (0.5, 20.0), (0.5 + since_the_last_look, 8.5)]
    looks += [(1.0 + n * 0.05, 8.5) for n in range(10)]

    said = {watchdog.look(now, free).action for now, free in looks}

    assert said == {Action.NONE}


@pytest.mark.requirement("LN-07")
@hypothesis_settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    start=st.floats(4.5, 200),
    speed=st.floats(0.05, 60),
    phase=st.floats(0, 1),
)
def test_no_steady_fall_gets_through(start: float, speed: float, phase: float) -> None:
    """Whenever it begins, a fall no faster than the box's fastest never passes the hard floor."""
    watchdog = Watchdog(SEED, fastest_gb_s=max(speed, FIRST_GUESS_GB_S))
    now, began = 0.0, 1.0 + phase * FAR_S
    while True:
        free = start - max(0.0, now - began) * speed
        decision = watchdog.look(now, free)
        if decision.action in (Action.KILL, Action.STOP):
            break
        now += watchdog.next_look_s(free)

    reach = speed * SHORTEST_S  # no look comes sooner
    assert free >= SEED.hard_gb - reach
    assert decision.action is Action.KILL or now - began >= HOLD_S


@pytest.mark.requirement("LN-07")
def test_looks_come_often_near_the_floor_and_before_the_fastest_fall() -> None:
    """50 ms under the warn level, 0.5 s above it, half the way of the fastest fall always."""
    watchdog = Watchdog(SEED)
    assert watchdog.next_look_s(100) == FAR_S
    assert watchdog.next_look_s(7.9) == NEAR_S
    assert watchdog.next_look_s(2.2) == pytest.approx(0.01)
    assert watchdog.next_look_s(2.0) == SHORTEST_S

    watchdog.look(0.0, 100.0)
    watchdog.look(0.5, 70.0)

    assert watchdog.fastest_gb_s == pytest.approx(60.0)
    assert watchdog.next_look_s(32.0) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("total", "expected"),
    [(128, Limits(8, 4, 2)), (64, Limits(8, 4, 2)), (25, Limits(4, 2, 1)), (0, Limits(0, 0, 0))],
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

    assert limits(WorkerSettings(), total=128) == Limits(10, 5, 2.5)


@pytest.mark.requirement("LN-07", "LN-09", "UI-07")
def test_memory_under_the_floor_stops_the_run_with_its_evidence(
    shortage: Shortage, db: Database, tally: Callable[..., int], tmp_path: Path
) -> None:
    """Sentinel with reason, headroom and floor → checkpoint → queued once more → aborted."""
    number = tally(pace=str(tmp_path / "go"), steps=9)
    run = RunDir(jobs.get_job(db, number).run_dir)

    write_json(run.lineage, {"trials": []})  # as an engine writes one

    first = shortage.drain(run.checkpoint(1).exists, then_gb=3.5)
    second = shortage.drain(run.checkpoint(2).exists, then_gb=3.5, plenty_gb=30.0)

    assert [(settled.state, settled.cause) for settled in first.ran] == [(State.QUEUED, None)]
    assert [(settled.state, settled.cause) for settled in second.ran] == [(State.ABORTED, "MEMORY")]
    abort = run.attempt(1).read_abort()
    assert abort is not None
    assert (abort.reason, abort.headroom_gb, abort.floor_gb) == (AbortReason.MEMORY, 3.5, 4.0)
    assert abort.tripped_at is not None
    readings = list(memory_points(run.attempt(1).root))
    assert min(point.free_gb for point in readings) == 3.5, "once a second, for the machine page"
    trace = jobs.get_job(db, number).result["mem_trace"]
    assert json.loads(run.lineage.read_bytes()) == {"trials": [], "mem_trace": trace}
    assert trace["phase_used_gb"] == {"training": 96.5}
    assert 0 < trace.pop("own_peak_gb") < 2, "of its own processes, whatever the machine says"
    assert {key: trace[key] for key in trace if key != "phase_used_gb"} == {
        "total_gb": 100.0,
        "headroom_at_spawn_gb": 20.0,
        "peak_used_gb": 96.5,
        "min_headroom_gb": 3.5,
        "abort_headroom_gb": 3.5,
        "oom_deferred": 2,
        "display": "peak 96.5 of 100.0 GB, 3.5 GB left at least, 2 times stopped for memory",
    }


LATE_SENTRY = """
import json, os, sys
from worker.memory import sentry

class Late(sentry.Sentry):
    def _request_stop(self, floor_gb, free):
        while os.read(0, 4096):  # until the supervisor is through with the engine
            pass
        super()._request_stop(floor_gb, free)

Late(sentry.Plan(**json.loads(sys.argv[1]))).run()
"""


@pytest.mark.requirement("LN-07")
def test_a_sentry_that_tells_of_its_kill_late_is_heard_all_the_same(
    shortage: Shortage,
    db: Database,
    tally: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It kills first and tells afterwards; on a machine short of memory that can take a while."""
    monkeypatch.setattr("worker.memory.guard.SENTRY", ("-c", LATE_SENTRY))
    number = tally(pace=str(tmp_path / "go"), steps=9, deaf=True)
    run = RunDir(jobs.get_job(db, number).run_dir)

    report = shortage.drain(run.checkpoint(1).exists, then_gb=1.5)

    assert [(settled.state, settled.cause) for settled in report.ran] == [(State.QUEUED, None)]
    trace = jobs.get_job(db, number).result["mem_trace"]
    assert (trace["oom_deferred"], trace["min_headroom_gb"]) == (1, 1.5)


@pytest.mark.requirement("LN-07")
def test_memory_under_the_hard_floor_kills_and_resumes_once(
    shortage: Shortage, db: Database, tally: Callable[..., int], tmp_path: Path
) -> None:
    """No checkpoint is waited for; the job counts as stopped for memory, not as crashed."""
    number = tally(pace=str(tmp_path / "go"), steps=9, deaf=True)
    run = RunDir(jobs.get_job(db, number).run_dir)

    report = shortage.drain(run.checkpoint(1).exists, then_gb=1.5)
    go = tmp_path / "go"
    go.touch()
    again = shortage.drain(lambda: False, then_gb=0.0, plenty_gb=30.0)

    assert [(settled.state, settled.cause) for settled in report.ran] == [(State.QUEUED, None)]
    assert [settled.state for settled in again.ran] == [State.SUCCEEDED]
    first = next(d for d in shortage.decisions(run, 1) if d["action"] == "kill")
    assert (first["action"], first["rule"], first["free_gb"]) == ("kill", "hard_floor", 1.5)
    assert first["limits"] == {"warn_gb": 8, "floor_gb": 4, "hard_gb": 2}
    assert first["reading"]["available_gb"] == pytest.approx(1.5)


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
