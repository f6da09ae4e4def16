"""The queue's verbs in every order, against the model of tests/worker/queue/queue_model.py."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.worker.queue.queue_model import QueueMachine
from worker.db.connection import Database


@pytest.mark.requirement("JB-05", "JB-06", "JB-07")
def test_the_queue_does_in_any_order_of_verbs_what_its_model_does(db: Database) -> None:
    """Enqueue, claim, settle, cancel, retry, requeue, pause, move, edit, and clocks that step."""

    class Machine(QueueMachine):
        database = db

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
