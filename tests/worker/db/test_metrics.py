"""Rollups say what the rows say, whatever was written, replaced or taken back."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import select

from tests.worker.queue.test_pruning import over
from worker.attempt.ingest import drop_metrics, write_metrics
from worker.db.connection import Database
from worker.db.metrics import SIZES
from worker.db.tables import metric, metric_rollup
from worker.queue.pruning import prune_one
from worker.queue.submit import enqueue
from worker.read import jobs, series
from worker.read.series import Steps


@pytest.fixture
def number(db: Database) -> int:
    """A job that measures nothing by itself."""
    return enqueue(db, "tally", {}, actor="test", force=True)


def measured(step: int, *, attempt: int = 1, **values: float) -> dict[str, Any]:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return {"type": "metric", "attempt": attempt, "t": 1e9 + step, "step": step, "values": named}


def started(resumed_from: int | None) -> dict[str, Any]:
    return {"type": "started", "attempt": 2, "t": 2e9, "resumed_from": resumed_from}


def write(db: Database, number: int, events: Iterable[dict[str, Any]]) -> None:
    with db.write_tx() as conn:
        write_metrics(conn, number, list(events))


def stored(db: Database) -> set[tuple[Any, ...]]:
    with db.read() as conn:
        rows = conn.execute(select(metric_rollup)).mappings()
        return {
            (row["job_id"], row["series"], row["size"], *list(row.values())[3:]) for row in rows
        }


def by_hand(db: Database) -> set[tuple[Any, ...]]:
    """The same from the rows, in Python."""
    with db.read() as conn:
        rows = conn.execute(select(metric).order_by(metric.c.step)).all()
    stretches: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        for size in SIZES:
            key = (row.job_id, row.series, size, row.step // size)
            stretches.setdefault(key, []).append(row)
    found = set()
    for key, inside in stretches.items():
        numbers = [row.value for row in inside]
        first, last = inside[0], inside[-1]
        ends = (first.step, first.value, first.at, last.step, last.value, last.at)
        found.add((*key, len(inside), sum(numbers), min(numbers), max(numbers), *ends))
    return found


def test_rollups_are_what_the_rows_say_after_any_writes(db: Database, number: int) -> None:
    """New steps, replaced ones, a resumed attempt and one from the beginning, in any order."""
    chance = random.Random(7)
    for _ in range(25):
        begin = chance.randrange(9000)
        events = [
            measured(step, a__x=chance.randrange(100), warmup__y=chance.randrange(100))
            for step in range(begin, begin + chance.choice((1, 3, 70)))
        ]
        if chance.random() < 0.3:
            events.insert(chance.randrange(len(events)), started(chance.randrange(9000)))
        write(db, number, events)
        assert stored(db) == by_hand(db)
    write(db, number, [started(None), measured(1, a__x=1.0)])
    assert stored(db) == by_hand(db)
    assert len(stored(db)) == len(SIZES)


def test_a_job_is_told_apart_from_its_neighbour(db: Database, number: int) -> None:
    """What one takes back stays with the other."""
    other = enqueue(db, "tally", {}, actor="test", force=True)
    for each in (number, other):
        write(db, each, [measured(step, a__x=float(step)) for step in range(20)])

    write(db, number, [started(3)])
    with db.write_tx() as conn:
        drop_metrics(conn, number)

    assert series.summaries(db, number) == {}
    assert series.summaries(db, other)["a/x"].n == 20


@pytest.mark.requirement("UI-02")
def test_a_long_curve_is_short_and_keeps_its_lowest_and_highest_value(
    db: Database, number: int
) -> None:
    """A spike of one step among a hundred thousand survives any zoom."""
    values = [float(step % 10) for step in range(1, 100_001)]
    values[31_233] = 99.0
    write(db, number, [measured(step, a__x=value) for step, value in enumerate(values, start=1)])

    for steps in (Steps(), Steps(20_000, 60_000), Steps(31_000, 31_500)):
        curve = series.curves(db, number, ["a/x"], steps)["a/x"]
        assert len(curve.steps) <= series.MOST_POINTS
        assert max(curve.highs) == 99.0
        assert curve.steps[list(curve.highs).index(99.0)] >= 31_234
    whole = series.curves(db, number, ["a/x"])["a/x"]
    assert whole.n == 100_000
    assert (whole.first_steps[0], whole.steps[-1]) == (1, 100_000)
    near = series.curves(db, number, ["a/x"], Steps(31_000, 31_500))["a/x"]
    assert (near.size, near.n) == (1, 501)
    summary = series.summaries(db, number)["a/x"]
    assert (summary.n, summary.low, summary.high, summary.last) == (100_000, 0.0, 99.0, 0.0)


def test_a_sparse_series_is_shown_as_it_is_however_far_its_steps_reach(
    db: Database, number: int
) -> None:
    """Twenty gates over a hundred thousand steps are twenty points."""
    write(db, number, [measured(step, a__x=1.0) for step in range(0, 100_000, 5000)])

    curve = series.curves(db, number, ["a/x"])["a/x"]

    assert (curve.size, len(curve.steps)) == (1, 20)


def test_values_beyond_one_answer_are_refused_with_the_ways_out(
    db: Database, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut off in silence."""
    monkeypatch.setattr(series, "MOST_VALUES", 10)
    write(db, number, [measured(step, a__x=1.0) for step in range(11)])

    with pytest.raises(series.TooManyValuesError, match=r"has 11 of these values.*points=1000"):
        series.values(db, number, None)

    assert len(series.values(db, number, ["a/x"], Steps(1, 10))["a/x"]) == 10


def test_attempts_are_found_by_the_steps_that_still_count(db: Database, number: int) -> None:
    """The second one went on behind step 3."""
    write(db, number, [measured(step, a__x=1.0) for step in range(1, 6)])
    write(db, number, [started(3), *(measured(step, attempt=2, a__x=1.0) for step in (4, 5))])

    assert series.attempts_began(db, number, "a/x") == [(1, 1), (2, 4)]


def test_a_prune_drops_rollups_with_their_rows(db: Database) -> None:
    """Held-out values stay, and their curve with them."""
    number = over(db)
    events = [measured(1, train__loss=0.5, heldout__select=0.5)]
    write(db, number, events)

    prune_one(db, number, actor="test")

    assert set(series.summaries(db, number)) == set(jobs.metrics(db, number)) == {"heldout/select"}
