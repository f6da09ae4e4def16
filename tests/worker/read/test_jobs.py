"""What pages and commands read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worker.db import changes
from worker.db.changes import announce
from worker.db.connection import Database
from worker.queue.lookup import JobNotFoundError
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import feed, jobs
from worker.read.lane import lane_status


def test_a_job_that_does_not_exist_is_an_error_with_the_way_out(db: Database) -> None:
    """Every door says it in the same words."""
    message = "job 7 does not exist; list them with: cockpit jobs"
    for look in (jobs.get_job, jobs.audit, jobs.metrics):
        with pytest.raises(JobNotFoundError) as missing:
            look(db, 7)
        assert str(missing.value) == message


def test_pages_go_backwards_from_the_newest_without_gap_or_overlap(
    db: Database, tally: Callable[..., int]
) -> None:
    """A job that comes meanwhile moves no page."""
    numbers = [tally() for _ in range(5)]

    first = jobs.list_jobs(db, limit=2)
    tally()
    second = jobs.list_jobs(db, before=first[-1].id, limit=2)
    third = jobs.list_jobs(db, before=second[-1].id, limit=2)

    assert [row.id for row in (*first, *second, *third)] == numbers[::-1]


def test_jobs_are_listed_by_state(db: Database, tally: Callable[..., int]) -> None:
    """Queued ones in the order in which they will be claimed."""
    numbers = [tally() for _ in range(3)]
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=1, actor="test")

    assert [row.id for row in jobs.running(db)] == numbers[:1]
    assert [row.id for row in jobs.next_jobs(db)] == numbers[1:]
    assert [row.id for row in jobs.list_jobs(db, state=State.QUEUED)] == numbers[:0:-1]


def test_a_reader_that_was_away_finds_every_change_behind_its_id(
    db: Database, tally: Callable[..., int]
) -> None:
    """The feed is what a live stream replays."""
    seen = feed.last_change_id(db)

    number = tally()

    found = feed.changes_after(db, seen)
    assert [(row.topic, row.job_id) for row in found] == [("job", number), ("board", number)]
    assert feed.changes_after(db, feed.last_change_id(db)) == []
    assert feed.oldest_change_id(db) == 1


def test_only_a_tail_of_the_changes_is_kept(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night of live results does not grow the file for ever."""
    monkeypatch.setattr(changes, "KEPT", 100)
    with db.write_tx() as conn:
        for _ in range(1_000):
            announce(conn, "job", 1)

    assert (feed.oldest_change_id(db), feed.last_change_id(db)) == (901, 1_000)


def test_a_lane_that_nobody_took_is_free(db: Database) -> None:
    """Asking for it creates nothing."""
    status = lane_status(db, "gpu7")

    assert (status.held, status.pid, status.heartbeat_age_s) == (False, None, None)
