"""Events to live result and metric rows, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import select, update

from engine.contract.events import EventLog
from engine.contract.run_dir import RunDir
from tests.worker.holding import hold_lane
from worker.attempt.ingest import LEFT_OUT, VALUES_LEFT_OUT, Ingest, fold, metric_rows
from worker.attempt.reindex import reindex
from worker.db.connection import Database
from worker.db.tables import job
from worker.estimate.time_left import left_s
from worker.lane.lease import Lease, LeaseLostError
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs


@pytest.fixture
def lease(db: Database) -> Iterator[Lease]:
    with hold_lane(db, db.settings) as held:
        yield held


@pytest.fixture
def run(db: Database, tally: Callable[..., int], lease: Lease) -> RunDir:
    """The directory of a running job 1."""
    number = tally()
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=lease.fence, actor="test")
    return RunDir(db.settings.runs_dir / str(number))


def ingest(lease: Lease, run: RunDir) -> Ingest:
    return Ingest(lease, 1, run)


Log = Callable[..., EventLog]


@pytest.fixture
def log(run: RunDir) -> Iterator[Log]:
    """Opens the engine's pen for an attempt; closed at the end."""
    with ExitStack() as pens:

        def open_log(attempt: int = 1) -> EventLog:
            pen = EventLog(run.events, attempt)
            pens.callback(pen.close)
            return pen

        yield open_log


def step(events: EventLog, number: int, score: float) -> None:
    events.write("metric", step=number, values={"pool/score": score})
    events.write("progress", step=number, pool_score=score)


def folded(*events: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for event in events:
        result = fold(result, {"attempt": 1, **event})
    return result


@pytest.mark.requirement("LN-10")
def test_the_live_result_is_a_fold_over_the_events() -> None:
    """Each event adds what it knows; the end adds the final result."""
    assert folded(
        {"type": "started", "resumed_from": None},
        {"type": "progress", "phase": "sampling", "step": 1, "max_steps": 9, "t": 0.0, "seq": 2},
        {"type": "gate", "step": 1, "split": "select", "score": 0.5, "n": 9, "ci95": [0.2, 0.8]},
        {"type": "gate", "step": 1, "split": "report", "score": 0.1, "n": 9},
        {"type": "note", "level": "info", "code": "X", "text": "x"},
        {"type": "finished", "status": "done", "result": {"lift": 0.2}},
    ) == {
        "status": "done",
        "phase": "sampling",
        "step": 1,
        "max_steps": 9,
        "gate": {"step": 1, "score": 0.5, "n": 9, "ci95": [0.2, 0.8], "selected": None},
        "last_heldout": 0.5,
        "lift": 0.2,
    }


@pytest.mark.requirement("LN-10")
def test_a_resumed_attempt_takes_back_what_came_after_its_step() -> None:
    """The step counts from there, a later gate did not happen, the earlier end is over."""
    assert folded(
        {"type": "started", "resumed_from": None},
        {"type": "progress", "base": "tiny", "step": 8},
        {"type": "gate", "step": 8, "split": "select", "score": 0.5},
        {"type": "finished", "status": "aborted", "result": {"aborted": True}},
        {"type": "started", "resumed_from": 5},
    ) == {"status": "running", "base": "tiny", "step": 5, "gate": None, "last_heldout": None}


def test_what_an_engine_expects_to_need_is_kept_with_its_moment_until_the_next_attempt() -> None:
    """It counts down from when it was said; other progress says nothing about it."""
    events: list[dict[str, Any]] = [
        {"type": "started", "resumed_from": None},
        {"type": "progress", "step": 1, "eta_s": 90.0, "t": 1000.0},
        {"type": "progress", "phase": "heldout-gate", "t": 1060.0},
    ]

    live = folded(*events)

    assert (live["eta_s"], live["eta_at"], left_s(live, 1060.0)) == (90.0, 1000.0, 30.0)
    assert left_s(live, 1100.0) == -10.0
    assert left_s(folded(*events, {"type": "started", "resumed_from": 1}), 1100.0) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "gate", "step": 2, "split": "select", "score": 0.6, "ci95": 0.05},
        {"type": "gate", "step": 2, "split": "select", "score": "high", "ci95": ["a"]},
        {"type": "progress", "step": "two", "gate": "text"},
        {"type": "progress", "step": 10**400, "max_steps": 1},
        {"type": "started", "resumed_from": "the beginning"},
        {"type": "finished", "status": "done", "result": ["no", "mapping"]},
        {"type": None},
        {"type": "metric", "step": 2, "values": {"a": 1.0}, "attempt": "first"},
    ],
)
def test_an_event_that_nobody_can_use_is_left_out_counted_and_told_once(
    broken: dict[str, Any],
) -> None:
    """Whatever an engine writes, the fold goes on, and says what it did not take."""
    begun: list[dict[str, Any]] = [
        {"type": "started", "resumed_from": None},
        {"type": "progress", "step": 1},
    ]

    result = folded(*begun, broken, {"type": None, "seq": 9}, {"type": "progress", "step": 3})

    left_out = result.pop(LEFT_OUT)
    assert (left_out["n"], result) == (2, {"status": "running", "step": 3})
    assert left_out["first"].startswith("event ")


def test_a_resumed_attempt_remembers_what_was_left_out() -> None:
    """The earlier attempt's steps still count, so what is missing of them does too."""
    begun: list[dict[str, Any]] = [
        {"type": "started", "resumed_from": None},
        {"type": None, "seq": 2},
    ]

    resumed = folded(*begun, {"type": "started", "resumed_from": 5})

    assert resumed[LEFT_OUT] == {"n": 1, "first": "event 2: type is missing"}
    assert LEFT_OUT not in folded(*begun, {"type": "started", "resumed_from": None})


@pytest.mark.parametrize(
    ("values", "step", "why"),
    [
        ({"a": None}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": "high"}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": True}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": False}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": [0.5]}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": {"mean": 0.5}}, 3, "a at step 3 is no number (NaN, infinite or of another type)"),
        ({"a": 1e301}, 3, "a at step 3 is beyond 1e+300"),
        ({"a": -(10**400)}, 3, "a at step 3 is beyond 1e+300"),
        ({"a": 1.0}, 2**31, "a at step 2147483648 is not at a step from 0 to 2147483647"),
        ({"a" * 301: 1.0}, 3, f"{'a' * 100} at step 3 has a name of more than 300 characters"),
        ({"a\0": 1.0}, 3, "a␀ at step 3 has a name that no table can hold"),
    ],
)
def test_a_value_that_no_chart_can_show_is_counted(
    values: dict[str, Any], step: int, why: str
) -> None:
    """Beside those that are shown; a line that just ends would pass for a measurement."""
    event = {"type": "metric", "step": step, "values": values}
    fine = {"type": "metric", "step": 2, "values": {"b": 1.0, "c": 0}}

    result = folded(fine, event, event)

    assert result[VALUES_LEFT_OUT] == {"n": 2, "first": why}
    assert list(metric_rows(event)) == []


def test_a_gate_of_another_version_does_not_end_a_resumption() -> None:
    """What a row holds may be older than the rule that an event must keep."""
    assert fold({"gate": {"step": "x"}}, {"type": "started", "attempt": 1, "resumed_from": 1})


def test_what_is_no_finite_number_is_no_metric() -> None:
    """A chart has no place for it; the event keeps it as null. `true` is no 100 %."""
    values = {"a": 1, "b": None, "c": "x", "d": True, "e": 10**400}
    event = {"type": "metric", "step": 1, "values": values}

    assert [(row.series, row.value) for row in metric_rows(event)] == [("a", 1.0)]


@pytest.mark.requirement("LN-10")
def test_a_crash_between_any_two_events_neither_loses_nor_doubles_one(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """A new reader that goes on from the row ends where one reader would have ended."""
    events = log()
    events.write("started", resumed_from=None)
    for number in range(1, 6):
        step(events, number, number / 10)
        ingest(lease, run).pull()
        ingest(lease, run).pull()

    assert jobs.metrics(db, 1) == {"pool/score": [(n, n / 10) for n in range(1, 6)]}
    assert jobs.get_job(db, 1).result == {"status": "running", "step": 5, "pool_score": 0.5}
    with db.read() as conn:
        read = conn.execute(select(job.c.ingested_seq, job.c.ingested_offset)).one()
    assert tuple(read) == (11, run.events.stat().st_size)


def test_a_torn_last_line_is_read_when_it_is_whole(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """Half a line is no event yet."""
    step(log(), 1, 0.1)
    follower = ingest(lease, run)
    whole = run.events.read_bytes()
    line = b'{"seq":3,"attempt":1,"t":1.0,"type":"metric","step":2,"values":{"pool/score":0.2}}\n'

    run.events.write_bytes(whole + line[:30])
    follower.pull()
    first = jobs.metrics(db, 1)["pool/score"]
    run.events.write_bytes(whole + line)
    follower.pull()

    assert first == [(1, 0.1)]
    assert jobs.metrics(db, 1)["pool/score"] == [(1, 0.1), (2, 0.2)]


@pytest.mark.requirement("LN-10")
@pytest.mark.parametrize(
    ("resumed_from", "pool", "warmup"),
    [(2, [(1, 0.1), (2, 0.2), (3, 0.9)], [(7, 1.5)]), (None, [(3, 0.9)], None)],
)
def test_a_new_attempt_supersedes_later_steps_of_the_one_before(
    db: Database,
    lease: Lease,
    run: RunDir,
    log: Log,
    resumed_from: int | None,
    pool: list[tuple[int, float]],
    warmup: list[tuple[int, float]] | None,
) -> None:
    """All of them when it began anew; warm-up steps have a count of their own."""
    first = log()
    first.write("started", resumed_from=None)
    first.write("metric", step=7, values={"warmup/loss": 1.5})
    for number in range(1, 5):
        step(first, number, number / 10)
    second = log(attempt=2)
    second.write("started", resumed_from=resumed_from)
    step(second, 3, 0.9)

    ingest(lease, run).pull()

    found = jobs.metrics(db, 1)
    assert found["pool/score"] == pool
    assert found.get("warmup/loss") == warmup


def test_a_file_that_lost_its_end_is_read_anew(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """A power cut takes events that were already shown: the file is the truth."""
    events = log()
    step(events, 1, 0.1)
    kept = run.events.read_bytes()
    step(events, 2, 0.2)
    ingest(lease, run).pull()

    run.events.write_bytes(kept)
    last = ingest(lease, run)
    step(log(), 2, 0.7)
    last.pull()

    assert jobs.metrics(db, 1)["pool/score"] == [(1, 0.1), (2, 0.7)]
    assert last.result["pool_score"] == 0.7


@pytest.mark.requirement("JB-04", "LN-10")
def test_a_late_supervisors_events_are_not_written(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """A stale fence changes 0 rows, in the metrics too."""
    late = Ingest(Lease(db, "cpu", lease.fence - 1), 1, run)
    step(log(), 1, 0.1)

    with pytest.raises(LeaseLostError):
        late.pull()

    assert jobs.metrics(db, 1) == {}
    assert jobs.get_job(db, 1).result == {}


@pytest.mark.requirement("LN-10")
def test_a_phase_change_or_a_gate_is_shown_at_once_and_the_rest_is_throttled(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """With a throttle of an hour only the urgent ones are written before the end."""
    db.settings = db.settings.model_copy(update={"throttle_s": 3600})
    follower, events = ingest(lease, run), log()
    events.write("progress", phase="sampling", step=1)
    follower.pull()

    events.write("progress", step=2)
    follower.pull()
    assert jobs.get_job(db, 1).result["step"] == 1
    events.write("progress", phase="training")
    follower.pull()
    assert jobs.get_job(db, 1).result["step"] == 2
    events.write("progress", step=3)
    events.write("gate", step=3, split="select", score=0.5, n=1, ci95=[0, 1])
    follower.pull()
    assert jobs.get_job(db, 1).result["step"] == 3
    events.write("progress", step=4)
    follower.pull()
    follower.flush()
    assert jobs.get_job(db, 1).result["step"] == 4


def test_lines_that_no_reader_can_use_keep_nobody_from_what_follows(
    db: Database, lease: Lease, run: RunDir, log: Log
) -> None:
    """Half a surrogate pair, a depth and a number that no reader takes, a line that is no event."""
    events = log()
    events.write("started", resumed_from=None)
    with run.events.open("ab") as stream:
        stream.write(
            b'{"seq":2,"attempt":1,"type":"metric","step":1,"values":{"a\\ud800":1}}\n'
            b'{"seq":3,"attempt":1,"type":"note","text":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
            b'{"seq":4,"attempt":1,"type":"progress","step":' + b"9" * 5000 + b"}\n"
            b'{"seq":"x","attempt":1,"type":"note"}\n'
            b'{"seq":5,"attempt":1,"type":"progress","domain":"\\ud800","adv_spread":NaN}\n'
        )
    step(log(), 1, 0.5)

    follower = ingest(lease, run)
    follower.pull()
    follower.flush()

    shown = jobs.get_job(db, 1).result
    assert shown[LEFT_OUT] == {"n": 3, "first": "a line before event 5 is no event"}
    assert (shown["domain"], shown["adv_spread"], shown["pool_score"]) == ("\ufffd", None, 0.5)
    assert jobs.metrics(db, 1) == {"a\ufffd": [(1, 1.0)], "pool/score": [(1, 0.5)]}
    with db.write_tx() as conn:
        conn.execute(update(job).values(state=State.FAILED))
    assert not reindex(db, 1).changed
    assert jobs.get_job(db, 1).result == shown
