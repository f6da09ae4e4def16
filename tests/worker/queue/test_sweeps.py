"""One config with lists, a job for every combination, all of them or none."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import registry
from engine.contract.errors import ConfigError
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue import sweeps
from worker.queue.refusals import AlreadyQueuedError, AlreadyTriedError
from worker.queue.submission import submission
from worker.queue.submit import enqueue
from worker.queue.sweeps import SweepSubmitted, checked_axes, config_at, points, submit_sweep
from worker.read import jobs

pytestmark = pytest.mark.requirement("JB-13")


def put(db: Database, axes: Any, **changed: Any) -> SweepSubmitted:
    wanted = submission({"kind": "tally", "config": {"seed": 5}, "sweep": axes, **changed})
    return submit_sweep(db, wanted, actor="test")


def test_a_sweep_becomes_a_job_for_every_combination(db: Database) -> None:
    """They share a sweep, and each knows its point; the last list changes fastest."""
    made = put(db, {"steps": [1, 2], "at_end": ["return", "crash"]}, name="grid", priority=3)

    rows = [jobs.get_job(db, number) for number in made.job_ids]
    assert [(row.config["steps"], row.config["at_end"]) for row in rows] == [
        (1, "return"),
        (1, "crash"),
        (2, "return"),
        (2, "crash"),
    ]
    assert {row.sweep_id for row in rows} == {made.sweep_id}
    assert rows[3].sweep_point == {"steps": 2, "at_end": "crash"}
    assert rows[3].name == "grid steps=2 at_end=crash"
    assert {(row.priority, row.config["seed"]) for row in rows} == {(3, 5)}
    found = jobs.get_sweep(db, made.sweep_id)
    assert (found.job_ids, found.axes["steps"]) == (made.job_ids, [1, 2])
    assert [row.id for row in jobs.list_jobs(db, sweep_id=made.sweep_id)] == made.job_ids[::-1]


def test_a_point_is_named_as_yaml_writes_it(db: Database) -> None:
    """Also what no terminal should print."""
    made = put(db, {"deaf": [True, False], "pace": [None, "a\nb"]}, name="grid")

    names = [jobs.get_job(db, number).name for number in made.job_ids]
    assert names[0] == "grid deaf=true pace=null"
    assert names[3] == r'grid deaf=false pace="a\nb"'


def test_one_point_that_cannot_run_refuses_the_whole_sweep(db: Database) -> None:
    """Each problem says at which point; nothing is written."""
    with pytest.raises(ConfigError) as refusal:
        put(db, {"steps": [1, "two"], "seed": [0, 1]})

    assert [problem.problem for problem in refusal.value.problems] == [
        f"input should be a valid integer, unable to parse string as an integer at steps=two {seed}"
        for seed in ("seed=0", "seed=1")
    ]
    assert jobs.list_jobs(db) == []


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({}, "sweep: must have 1 to 20 settings"),
        ({"steps": []}, "sweep.steps: has no values"),
        ({"steps": [1, 1]}, "sweep.steps: has a value twice"),
        ({"steps": [1, 1.0]}, "sweep: makes the same job at steps=1 and at steps=1.0; give each"),
        (
            {"steps": [datetime.date(2026, 1, 2)]},
            "steps: takes a whole number, and this is read as",
        ),
        ({"steps": [2**31], "reads": ["a\0"]}, "sweep.reads: holds a null byte (got 'a\\x00')"),
        ({"steps..x": [1]}, "sweep.steps..x: is no setting's name"),
        ({"stepz": [1, 2]}, "stepz: is not a setting at stepz=1; did you mean steps?"),
        ({"seed.x": [1]}, "sweep.seed.x: seed is a value, not a section"),
        ({"steps": 3}, "sweep.steps: takes a list, and this is read as"),
        ([1, 2], "sweep: takes a mapping, and this is read as"),
        ({f"a{n}": [1] for n in range(21)}, "sweep: must have 1 to 20 settings"),
    ],
)
def test_a_sweep_that_is_none_is_refused_by_name(db: Database, axes: Any, words: str) -> None:
    """The line names the list; nothing is written."""
    with pytest.raises(ConfigError) as refusal:
        put(db, axes)

    assert str(refusal.value).startswith(words)
    assert jobs.list_jobs(db) == []


def test_a_sweep_of_a_million_is_refused_before_anything_is_expanded(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is known from the lengths of the lists."""
    monkeypatch.setattr(sweeps, "points", lambda _: pytest.fail("it was expanded"))
    axes = {"steps": list(range(1, 101)), "seed": list(range(100)), "at_end": list(range(100))}

    with pytest.raises(ConfigError, match=r"sweep: has more than 500 combinations \(got 1000000\)"):
        put(db, axes)
    with pytest.raises(ConfigError, match="more than 10"):
        put(db, {f"a{n}": list(range(1000)) for n in range(20)})
    assert len(checked_axes(submission({"kind": "tally", "sweep": {"seed": list(range(500))}})))


def test_a_point_that_was_tried_refuses_the_sweep_unless_forced(db: Database) -> None:
    """It is named, with the job that has the result."""
    put(db, {"steps": [1, 2]})
    with by_hand(db) as hand:
        hand.run()

    with pytest.raises(AlreadyTriedError, match="the point steps=1 was tried already: job 1 has"):
        put(db, {"steps": [1, 3]})

    assert len(jobs.list_jobs(db)) == 2
    assert len(put(db, {"steps": [1, 3]}, force=True).job_ids) == 2


def test_a_point_that_waits_already_refuses_the_sweep_unless_forced(db: Database) -> None:
    """A sweep and a single job know each other's experiments, either way round."""
    put(db, {"steps": [1, 2]})

    with pytest.raises(AlreadyQueuedError, match="the point steps=2 waits in the queue already"):
        put(db, {"steps": [2, 3]})
    with pytest.raises(AlreadyQueuedError, match="this waits in the queue already: job 1 has"):
        enqueue(db, "tally", {"seed": 5, "steps": 1}, actor="test")

    assert len(jobs.list_jobs(db)) == 2
    assert len(put(db, {"steps": [2, 3]}, force=True).job_ids) == 2


def test_points_that_differ_in_nothing_that_counts_are_one_experiment(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads change no result: a sweep over them is refused, unless it is meant."""
    monkeypatch.setitem(registry.get_kind("tally").__dict__, "indifferent", frozenset({"deaf"}))

    with pytest.raises(ConfigError, match="makes the same job at deaf=true and at deaf=false"):
        put(db, {"deaf": [True, False]})
    assert len(put(db, {"deaf": [True, False]}, force=True).job_ids) == 2


def test_the_jobs_of_a_sweep_can_wait_for_another_job(db: Database) -> None:
    """What is asked of the sweep is asked of each of its jobs."""
    parent = put(db, {"steps": [1]}).job_ids[0]

    made = put(db, {"steps": [2, 3]}, after=[parent], tags=["grid"])

    for number in made.job_ids:
        row = jobs.get_job(db, number)
        assert (row.after, row.tags) == ([parent], ["grid"])
        assert row.waits_for is not None
        assert row.waits_for.reason == "WAITING_FOR"


@given(
    st.dictionaries(
        st.sampled_from(["a", "b.c", "b.d", "e"]),
        st.lists(st.integers(), min_size=1, max_size=4, unique=True),
        min_size=1,
    )
)
def test_every_combination_comes_once_and_stands_in_its_place(axes: dict[str, list[int]]) -> None:
    """As many as the lengths multiply to, none twice; the config given is not touched."""
    base = {"b": {"kept": 1}}
    found = list(points(axes))

    assert len({tuple(point.items()) for point in found}) == len(found)
    for point in found:
        config = config_at(base, point)
        assert config["b"]["kept"] == 1
        for name, value in point.items():
            section = config
            for part in name.split("."):
                section = section[part]
            assert section == value
    assert base == {"b": {"kept": 1}}
