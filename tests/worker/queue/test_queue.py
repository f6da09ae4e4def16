"""In at one end, out at the other, once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from engine.contract.errors import ConfigError
from worker.db.connection import Database
from worker.queue.states import State
from worker.queue.submit import Claim, claim, enqueue
from worker.read import feed, jobs


def take(db: Database, fence: int = 1) -> Claim | None:
    with db.write_tx() as conn:
        return claim(conn, lane="cpu", fence=fence, actor="test")


def test_a_job_enters_with_every_default_written_out(db: Database) -> None:
    """What will run is on record before it runs."""
    number = enqueue(db, "tally", {"steps": 5}, actor="cli:ada", name=" my run ")

    row = jobs.get_job(db, number)
    assert (row.state, row.created_by, row.name) == (State.QUEUED, "cli:ada", "my run")
    assert row.config["steps"] == 5
    assert row.config["at_end"] == "return"
    assert row.run_dir == db.settings.runs_dir / str(number)


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        ("tally", {"stepz": 5}, "stepz: is not a setting; did you mean steps?"),
        ("tallly", {}, "kind: is not a kind of job (got 'tallly'); did you mean tally?"),
        ("rl_run", {"base": "/nowhere"}, "base: does not exist (got '/nowhere')"),
    ],
)
def test_a_config_that_cannot_run_is_refused_and_nothing_is_written(
    db: Database, kind: str, raw: dict[str, object], words: str
) -> None:
    """No job, no audit row, no change."""
    with pytest.raises(ConfigError) as refusal:
        enqueue(db, kind, raw, actor="test")

    assert words in str(refusal.value)
    assert jobs.list_jobs(db) == []
    assert feed.last_change_id(db) == 0


@pytest.mark.parametrize("name", ["", "   ", "x" * 121])
def test_a_name_nobody_can_read_is_refused(db: Database, name: str) -> None:
    """A name is for people; leaving it out is fine."""
    with pytest.raises(ConfigError, match="name: must have 1 to 120 characters"):
        enqueue(db, "tally", {}, actor="test", name=name)


def test_the_oldest_job_is_claimed_first(db: Database, tally: Callable[..., int]) -> None:
    """First in, first out; an empty queue gives nothing."""
    numbers = [tally(), tally()]

    claims = [take(db), take(db), take(db)]

    assert [found and found.job_id for found in claims] == [*numbers, None]
    assert claims[0] == Claim(numbers[0], "tally", jobs.get_job(db, numbers[0]).config, 1, 1)


@pytest.mark.requirement("JB-04")
def test_of_many_claims_at_once_each_job_goes_to_exactly_one(
    db: Database, tally: Callable[..., int]
) -> None:
    """Eight claimers, five jobs: five claims, no job twice, three empty hands."""
    numbers = [tally() for _ in range(5)]
    found: list[Claim | None] = []
    start = threading.Barrier(8)

    def claimer(fence: int) -> None:
        start.wait()
        found.append(take(db, fence))

    threads = [threading.Thread(target=claimer, args=(fence,)) for fence in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.job_id for one in found if one) == numbers
    assert found.count(None) == 3
    assert all(len(jobs.audit(db, number)) == 2 for number in numbers)


def test_a_job_can_be_left_for_another_drain(db: Database, tally: Callable[..., int]) -> None:
    """A job that was put back does not block those behind it."""
    first, second = tally(), tally()

    with db.write_tx() as conn:
        found = claim(conn, lane="cpu", fence=1, actor="test", skip=[first])

    assert found is not None
    assert found.job_id == second
