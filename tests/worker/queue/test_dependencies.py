"""Jobs that run after others, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.errors import ConfigError
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue import control
from worker.queue.refusals import CycleError, ParentFailedError
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs

pytestmark = pytest.mark.requirement("JB-05")


def put(db: Database, **placement: Any) -> int:
    return enqueue(db, "tally", {}, actor="test", force=True, **placement)


def reason(db: Database, number: int) -> str | None:
    waits = jobs.get_job(db, number).waits_for
    return waits.reason if waits else None


def test_a_job_waits_for_all_that_it_runs_after(db: Database) -> None:
    """It says which, and is free in the moment in which the last one has succeeded."""
    first, second = put(db), put(db)
    child = put(db, after=[first, second], priority=100)

    with by_hand(db) as hand:
        waits = jobs.get_job(db, child).waits_for
        assert waits is not None
        assert (waits.reason, waits.detail) == ("WAITING_FOR", f"runs after jobs {first}, {second}")
        assert hand.run() == first
        assert reason(db, child) == "WAITING_FOR"
        put(db)
        assert hand.run() == second
        assert hand.run() == child


def test_a_job_whose_parent_fails_is_cancelled_down_the_whole_chain(db: Database) -> None:
    """In the transaction that settles the parent; each names the one before it."""
    parent = put(db)
    child = put(db, after=[parent])
    grandchild = put(db, after=[child])

    with by_hand(db) as hand:
        hand.run(State.FAILED)

    for number, before, how in ((child, parent, "failed"), (grandchild, child, "cancelled")):
        row = jobs.get_job(db, number)
        assert (row.state, row.cause) == (State.CANCELLED, "PARENT_FAILED")
        assert row.error is not None
        assert row.error.startswith(f"job {before} is {how}, and this one was to run after")
        assert row.finished_at is not None
    assert jobs.counts(db)[State.CANCELLED] == 2


@pytest.mark.parametrize("end", [State.FAILED, State.ABORTED, State.CANCELLED])
def test_a_job_may_run_all_the_same_or_wait_for_a_better_end(db: Database, end: State) -> None:
    """`run` takes any end; `wait` takes a success alone, and the parent may be tried again."""
    parent = put(db)
    anyway = put(db, after=[parent], if_parent_fails="run")
    patient = put(db, after=[parent], if_parent_fails="wait")

    with by_hand(db) as hand:
        hand.run(end)
        assert (reason(db, anyway) == "WAITING_FOR", reason(db, patient)) == (False, "WAITING_FOR")
        assert hand.run() == anyway
        control.retry(db, parent, actor="test")
        assert hand.order() == [parent, patient]


def test_cancelling_a_queued_job_is_an_end_too(db: Database) -> None:
    """Whoever was to follow it hears of it at once."""
    parent = put(db)
    child = put(db, after=[parent])

    control.cancel(db, parent, actor="cli:ada")

    assert jobs.get_job(db, child).state is State.CANCELLED
    assert jobs.audit(db, child)[-1].actor == "cli:ada"


def test_a_start_time_still_counts_when_the_parents_are_done(db: Database) -> None:
    """First the one reason, then the other."""
    parent = put(db)
    child = put(db, after=[parent], not_before="+1h")

    with by_hand(db) as hand:
        hand.run()

    assert reason(db, child) == "NOT_BEFORE"


def test_parents_that_succeeded_long_ago_hold_nobody_up(db: Database) -> None:
    """The job is claimable from the start."""
    parent = put(db)
    with by_hand(db) as hand:
        hand.run()
        child = put(db, after=[parent])

        assert hand.run() == child


def test_a_job_that_would_be_cancelled_at_once_is_refused(db: Database) -> None:
    """With both ways out; nothing is written."""
    parent = put(db)
    with by_hand(db) as hand:
        hand.run(State.FAILED)

    with pytest.raises(ParentFailedError, match=rf"cockpit retry {parent}, or run this one all"):
        put(db, after=[parent])

    assert len(jobs.list_jobs(db)) == 1


def test_a_retry_of_a_child_waits_for_the_retry_of_its_parent(db: Database) -> None:
    """Parent first: then both run in their order."""
    parent = put(db)
    child = put(db, after=[parent])
    with by_hand(db) as hand:
        hand.run(State.FAILED)
        with pytest.raises(ParentFailedError, match=f"the same: cockpit retry {child} --fresh$"):
            control.retry(db, child, actor="test")
        control.retry(db, parent, actor="test")
        control.retry(db, child, actor="test")

        assert hand.order() == [parent, child]


def test_parents_that_do_not_exist_are_all_named(db: Database) -> None:
    """One round is enough to correct them; nothing is written."""
    known = put(db)

    with pytest.raises(ConfigError) as refusal:
        put(db, after=[known, 98, 99])

    assert [problem.value for problem in refusal.value.problems] == [98, 99]
    assert len(jobs.list_jobs(db)) == 1


def test_a_job_cannot_be_made_to_wait_for_itself(db: Database) -> None:
    """Neither directly nor through others; the table stays as it was."""
    first = put(db)
    second = put(db, after=[first])
    third = put(db, after=[second])

    for parent, told in (
        (first, "itself; leave it out"),
        (second, "job 2: that"),
        (third, "job 3"),
    ):
        with pytest.raises(CycleError, match=f"job {first} cannot wait for {told}"):
            control.edit(db, first, {"after": [parent], "priority": 9}, actor="test")

    assert jobs.get_job(db, first).after == []
    assert jobs.get_job(db, first).priority == 0


@pytest.mark.parametrize("policy", ["run", "wait"])
def test_other_parents_leave_what_their_failure_means_as_it_was(db: Database, policy: str) -> None:
    """What is not given stays; a job that had no parents is cancelled with its first ones."""
    first, second = put(db), put(db)
    child, free = put(db, after=[first], if_parent_fails=policy), put(db)

    control.edit(db, child, {"after": [second]}, actor="test")
    control.edit(db, free, {"after": [second]}, actor="test")

    rows = [jobs.get_job(db, number) for number in (child, free)]
    assert [(row.after, row.if_parent_fails) for row in rows] == [
        ([second], policy),
        ([second], "cancel"),
    ]


@pytest.mark.parametrize("raw", [{}, {"after": []}])
def test_what_a_parents_failure_means_needs_a_parent(db: Database, raw: dict[str, Any]) -> None:
    """Nothing would be stored: the job says so instead of changing."""
    number = put(db)
    before = jobs.audit(db, number)

    with pytest.raises(ConfigError, match=f"if_parent_fails: means nothing: job {number} runs"):
        control.edit(db, number, {"if_parent_fails": "run", **raw}, actor="test")

    assert jobs.audit(db, number) == before


def test_a_job_that_waits_for_a_retry_says_which_one(db: Database) -> None:
    """As soon as its parent fails, and no longer once somebody tries that one again."""
    parent, other = put(db), put(db)
    child = put(db, after=[parent, other], if_parent_fails="wait")

    def told() -> str:
        waits = jobs.get_job(db, child).waits_for
        assert waits is not None
        return waits.detail

    with by_hand(db) as hand:
        hand.run(State.FAILED)
        failed = f"runs after jobs {parent}, {other}; job {parent} is failed, try it again with: "
        assert told() == f"{failed}cockpit retry {parent}"
        control.edit(db, child, {"after": [parent]}, actor="test")
        assert told().startswith(f"runs after job {parent}; job {parent} is failed")
        control.retry(db, parent, actor="test")
        assert told() == f"runs after job {parent}"
        control.cancel(db, parent, actor="test")
        assert told().endswith(f"; job {parent} is cancelled, try it again with: cockpit retry 1")
        late = put(db, after=[parent], if_parent_fails="wait")
        assert jobs.get_job(db, late).waits_for == jobs.get_job(db, child).waits_for


def test_what_a_queued_job_waits_for_can_be_changed(db: Database) -> None:
    """Other parents, none, another policy: its reason follows."""
    first, second = put(db), put(db)
    child = put(db, after=[first])

    control.edit(db, child, {"after": [second], "if_parent_fails": "wait"}, actor="test")
    row = jobs.get_job(db, child)
    assert (row.after, row.if_parent_fails) == ([second], "wait")
    control.edit(db, child, {"if_parent_fails": "run"}, actor="test")
    assert jobs.get_job(db, child).after == [second]
    control.edit(db, child, {"after": []}, actor="test")
    assert reason(db, child) == "NOT_ARMED"
    control.edit(db, child, {"not_before": "+1h"}, actor="test")
    assert reason(db, child) == "NOT_BEFORE"
    control.edit(db, child, {"not_before": None}, actor="test")
    assert reason(db, child) == "NOT_ARMED"


@pytest.mark.parametrize("end", [State.CANCELLED, State.FAILED, State.ABORTED])
def test_who_waits_for_a_job_that_is_run_anew_waits_for_the_new_one(
    db: Database, end: State
) -> None:
    """It says so, its audit says why, and the success of the new one frees it."""
    parent = put(db)
    other = put(db, priority=-5)
    child = put(db, after=[parent, other], if_parent_fails="wait")
    anyway = put(db, after=[parent], if_parent_fails="run", priority=-9)
    with by_hand(db) as hand:
        assert hand.run(end) == parent
        fresh = control.retry_fresh(db, parent, actor="ada")
        waits = jobs.get_job(db, child).waits_for
        assert waits is not None
        assert waits.detail == f"runs after jobs {other}, {fresh}"
        assert jobs.get_job(db, child).after == [other, fresh]
        assert jobs.get_job(db, anyway).after == [parent], "it was free already"
        entry = jobs.audit(db, child)[-1]
        assert (entry.actor, entry.why) == (
            "ada",
            f"runs after job {fresh}, which is job {parent} from the beginning",
        )
        assert control.followers_of(db, fresh) == [child]
        assert hand.order() == [fresh, other, child, anyway]


def test_a_second_fresh_retry_takes_them_over_again(db: Database) -> None:
    """And the end of the new one counts as that of any parent."""
    parent = put(db)
    child = put(db, after=[parent], if_parent_fails="wait")
    with by_hand(db) as hand:
        hand.run(State.FAILED)
        second = control.retry_fresh(db, parent, actor="test")
        hand.run(State.FAILED)
        third = control.retry_fresh(db, second, actor="test")

        assert jobs.get_job(db, child).after == [third]
        assert hand.order() == [third, child]


def test_a_child_that_was_cancelled_with_its_parent_is_retried_after_the_new_one(
    db: Database,
) -> None:
    """Not after the old one, which nobody is going to try again."""
    parent = put(db)
    child = put(db, after=[parent])
    with by_hand(db) as hand:
        hand.run(State.FAILED)
        fresh = control.retry_fresh(db, parent, actor="test")
        control.retry(db, child, actor="test")

        assert jobs.get_job(db, child).after == [fresh]
        assert hand.order() == [fresh, child]


def test_who_waits_for_a_success_that_is_run_anew_stays_free(db: Database) -> None:
    """It has what it waited for."""
    parent = put(db)
    with by_hand(db) as hand:
        hand.run()
    child = put(db, after=[parent])
    control.retry_fresh(db, parent, actor="test")

    assert jobs.get_job(db, child).after == [parent]
