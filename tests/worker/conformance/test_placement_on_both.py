"""What the queue looks up by its own indexes and types, on every database."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue import control, order
from worker.queue.pruning import prune_older
from worker.queue.refusals import AlreadyTriedError
from worker.queue.states import State
from worker.queue.submission import submission
from worker.queue.submit import enqueue, look, submit
from worker.queue.sweeps import submit_sweep
from worker.read import jobs


def put(db: Database, *, force: bool = True, **placement: Any) -> int:
    return enqueue(db, "tally", {}, actor="test", force=force, **placement)


@pytest.mark.requirement("JB-05")
def test_order_deferrals_and_filters_are_the_same(db: Database) -> None:
    """Priority, rank, start time, parents, tags, and the counters beside them."""
    first, urgent = put(db), put(db, priority=9, tags=["a"])
    child, late = put(db, after=[first]), put(db, not_before="+1h")
    order.move_to_top(db, first, actor="test")
    control.edit(db, late, {"priority": 3}, actor="test")

    assert [row.id for row in jobs.next_jobs(db)] == [first, urgent, late, child]
    assert [row.id for row in jobs.list_jobs(db, tag="a", state=State.QUEUED)] == [urgent]
    assert look(db, now=time.time() + 3601).due
    with by_hand(db) as hand:
        assert hand.order() == [first, urgent, child]
    assert jobs.counts(db)[State.SUCCEEDED] == 3
    assert [row.outcome for row in jobs.attempts(db, first)] == [State.SUCCEEDED]


@pytest.mark.requirement("JB-03", "JB-12", "JB-13")
def test_keys_sweeps_and_finished_results_are_the_same(db: Database) -> None:
    """What is stored as JSON comes back as it was."""
    wanted = submission({"kind": "tally", "sweep": {"seed": [1, 2]}})
    made = submit_sweep(db, wanted, actor="test", key="k")
    assert submit_sweep(db, wanted, actor="test", key="k") == made._replace(repeated=True)
    assert jobs.get_sweep(db, made.sweep_id).axes == {"seed": [1, 2]}
    assert jobs.get_job(db, made.job_ids[1]).sweep_point == {"seed": 2}
    with by_hand(db) as hand:
        hand.order()

    with pytest.raises(AlreadyTriedError):
        submit(db, submission({"kind": "tally", "config": {"seed": 1}}), actor="test")

    assert len(prune_older(db, -60, actor="test").pruned) == 2
