"""Who is next: priority, order of arrival, start times, tags, and people who move jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from engine.contract.errors import ConfigError
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.db.tables import DEFERRED, TRIED, job
from worker.drain import drain
from worker.queue import order
from worker.queue.lookup import JobNotFoundError
from worker.queue.refusals import WrongStateError
from worker.queue.states import State
from worker.queue.submit import _NEXT, enqueue, look
from worker.read import jobs
from worker.settings import WorkerSettings

Tally = Callable[..., int]
pytestmark = pytest.mark.requirement("JB-05")


def put(db: Database, **placement: Any) -> int:
    return enqueue(db, "tally", {}, actor="test", force=True, **placement)


def test_a_higher_priority_goes_first_and_equal_ones_by_arrival(db: Database) -> None:
    """Never by id alone."""
    low, normal, second, high = (put(db, priority=number) for number in (-5, 0, 0, 10))

    with by_hand(db) as hand:
        assert hand.order() == [high, normal, second, low]


def test_a_job_with_a_start_time_blocks_nobody_and_runs_when_it_has_come(db: Database) -> None:
    """The most urgent job of tomorrow leaves the lane to the least urgent one of today."""
    later = put(db, priority=100, not_before="+1h")
    now = put(db, priority=-100)
    due = jobs.get_job(db, later).not_before
    assert due is not None

    with by_hand(db) as hand:
        assert hand.run() == now
        assert hand.claim(now=due - 1) is None
        taken = hand.claim(now=due)

    assert taken is not None
    assert taken.job_id == later


def test_a_job_with_a_start_time_says_so_and_until_when(db: Database) -> None:
    """One word, one sentence, one moment."""
    number = put(db, not_before="+1h")

    waits = jobs.get_job(db, number).waits_for
    assert waits is not None
    assert waits.reason == "NOT_BEFORE"
    assert waits.next_eligible_at == pytest.approx(time.time() + 3600, abs=60)
    assert look(db).claimable is False
    assert look(db, now=time.time() + 3601).due is True


def test_the_board_lists_claimable_jobs_in_their_order_and_deferred_ones_behind(
    db: Database,
) -> None:
    """By their time; who waits for something else comes last."""
    running = put(db)
    child = put(db, after=[running], priority=100)
    late, soon = put(db, not_before="+2h"), put(db, not_before="+1h")
    low, high = put(db), put(db, priority=1)

    assert [row.id for row in jobs.next_jobs(db)] == [high, running, low, soon, late, child]
    assert [row.id for row in jobs.next_jobs(db, limit=4)] == [high, running, low, soon]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"to": "top"}, [3, 1, 2, 4]),
        ({"to": "bottom"}, [1, 2, 4, 3]),
        ({"before": 2}, [1, 3, 2, 4]),
        ({"after": 1}, [1, 3, 2, 4]),
        ({"after": 4}, [1, 2, 4, 3]),
        ({"before": 3}, [1, 2, 3, 4]),
    ],
)
def test_a_queued_job_goes_where_it_is_moved(
    db: Database, raw: dict[str, Any], expected: list[int]
) -> None:
    """Job 3 of four; the others keep their order."""
    for _ in range(4):
        put(db)

    order.move(db, 3, raw, actor="cli:ada")

    assert [row.id for row in jobs.next_jobs(db)] == expected


def test_a_job_that_is_moved_among_others_of_another_priority_takes_theirs(db: Database) -> None:
    """What people see is a list; where they put a job, it runs. The audit says it."""
    high, low = put(db, priority=5), put(db)

    order.move(db, low, {"before": high}, actor="cli:ada")

    assert [row.id for row in jobs.next_jobs(db)] == [low, high]
    assert jobs.get_job(db, low).priority == 5
    said = jobs.audit(db, low)[-1]
    assert (said.actor, said.why) == ("cli:ada", f"moved before job {high}, priority 5")


def test_a_job_can_be_moved_between_two_others_for_ever(db: Database) -> None:
    """Fractions run out after fifty times; then ranks are dealt out anew, behind nobody's back."""
    first, second, third = put(db), put(db), put(db)

    for _ in range(70):
        order.move(db, second, {"before": third}, actor="test")
        order.move(db, first, {"before": third}, actor="test")
    newcomer = put(db)

    assert [row.id for row in jobs.next_jobs(db)] == [second, first, third, newcomer]


def test_a_new_job_stands_behind_one_that_was_moved_to_the_bottom(db: Database) -> None:
    """The bottom of now is not the bottom for ever."""
    first, second = put(db), put(db)
    for _ in range(3):
        order.move_to_bottom(db, first, actor="test")
        order.move_to_bottom(db, second, actor="test")

    newcomer = put(db)

    assert [row.id for row in jobs.next_jobs(db)] == [first, second, newcomer]


def test_only_queued_jobs_have_a_place(db: Database) -> None:
    """Neither the one that is moved nor its neighbour may be over; nothing is written."""
    gone, here = put(db), put(db)
    with by_hand(db) as hand:
        hand.run()

    for job_id, other in ((gone, here), (here, gone)):
        with pytest.raises(WrongStateError, match=f"job {gone} is succeeded; only queued jobs"):
            order.move_before(db, job_id, other, actor="test")
    with pytest.raises(JobNotFoundError):
        order.move_after(db, here, 99, actor="test")
    assert len(jobs.audit(db, here)) == 1


@pytest.mark.parametrize(
    "raw", [{}, {"before": 1, "after": 2}, {"to": "left"}, {"before": 0}, {"where": "top"}]
)
def test_a_move_to_no_single_place_is_refused(db: Database, raw: dict[str, Any]) -> None:
    """Each mistake has its line."""
    put(db)

    with pytest.raises(ConfigError):
        order.move(db, 1, raw, actor="test")


def test_jobs_are_found_by_their_tags(db: Database) -> None:
    """Newest first, page by page."""
    numbers = [put(db, tags=["night", "lr"]), put(db, tags=["night"]), put(db, tags=["lr"])]

    found = jobs.list_jobs(db, tag="night")

    assert [row.id for row in found] == [numbers[1], numbers[0]]
    assert found[1].tags == ["lr", "night"]
    assert jobs.list_jobs(db, tag="night", before=numbers[1])[0].id == numbers[0]
    assert jobs.list_jobs(db, tag="nobody") == []


def test_no_look_at_the_queue_sorts_or_reads_history(db: Database) -> None:
    """Claim, wake, board and the search for a finished result each read a partial index alone."""
    statements = {
        "ix_job_claim": _NEXT,
        "ix_job_deferred": sa.select(job.c.id)
        .where(sa.text(DEFERRED), job.c.next_eligible_at <= 1.0)
        .order_by(job.c.next_eligible_at)
        .limit(5),
        "ix_job_same_done": sa.select(job.c.id)
        .where(sa.text(TRIED), job.c.config_hash == "a", job.c.data_hash == "b")
        .order_by(job.c.id.desc()),
    }
    for index, statement in statements.items():
        with db.read() as conn:
            sql = str(statement.compile(conn, compile_kwargs={"literal_binds": True}))
            plan = [row[-1] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")]
        assert len(plan) == 1, plan
        assert index in plan[0]


def test_a_job_that_went_back_keeps_its_place(db: Database) -> None:
    """Who has begun goes on before those that came later."""
    first, second = put(db), put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        hand.settle(taken, State.QUEUED)

        assert hand.order() == [first, second]
    with db.read() as conn:
        assert conn.execute(sa.select(job.c.rank).where(job.c.id == first)).scalar_one() == first


def test_a_drain_starts_a_job_when_its_clock_says_so_and_not_before(
    db: Database, settings: WorkerSettings
) -> None:
    """A clock that is an hour behind waits, one that is an hour ahead begins; nothing is lost."""
    number = put(db, not_before="+30m")

    behind = drain(settings, clock=lambda: time.time() - 3600)
    ahead = drain(settings, clock=lambda: time.time() + 3600)

    assert [settled.job_id for settled in behind.ran] == []
    assert [(settled.job_id, settled.state) for settled in ahead.ran] == [(number, State.SUCCEEDED)]


def test_a_drain_runs_a_chain_in_one_go(db: Database, settings: WorkerSettings) -> None:
    """A job that becomes free while the drain runs is the drain's next one."""
    first = put(db)
    second = put(db, after=[first], priority=5)

    assert [settled.job_id for settled in drain(settings).ran] == [first, second]
