"""What pages, report and command line tell of a run whose checkpoints are scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from engine.contract.run_dir import RunDir
from tests.app.conftest import Said
from tests.app.night import Attempt
from tests.app.watched import model, rows, run, scored
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue.evaluations import queue_evaluations, watch
from worker.queue.states import State

__all__ = ["model", "rows", "run"]

Cockpit = Callable[..., Said]


def words(page: str) -> str:
    return " ".join(page.replace("\u00a0", " ").split())


@pytest.fixture
def evaluation(db: Database, run: RunDir, rows: Path) -> Iterator[Attempt]:
    """Job 2, which scores steps 0, 2 and 4 of run 1: it runs, and has scored the baseline."""
    watch(db, 1, {"benches": [{"source": str(rows), "verifier": "exact"}]}, actor="test")
    assert queue_evaluations(db, actor="test") == [2]
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        attempt = Attempt(hand.lease, taken)
        attempt.write(
            "progress", phase="sampling", step=120, max_steps=360, domain="step 2 on rows"
        )
        scored(db, 2, 0, 0.5)
        yield attempt
        attempt.close()
        hand.settle(taken, State.SUCCEEDED)


def test_the_page_of_an_evaluation_says_what_is_asked_now_and_what_is_scored(
    evaluation: Attempt, client: TestClient, cockpit: Cockpit
) -> None:
    """Rows answered, the checkpoint that answers, and a table of the scores there are."""
    page = words(client.get("/jobs/2").text)
    said = cockpit("show", "2").out

    assert "1 of 3 checkpoints" in page
    assert "step 2 on rows" in page
    assert "120 of 360" in page
    assert 'href="/jobs/1">job 1</a>' in page
    assert "50.0 %" in page
    assert "scored        1 of 3 checkpoints on rows" in said
    assert "asking        step 2 on rows" in said
    assert "50.0 % (45.0 to 55.0), n 120" in said


def test_the_page_of_a_run_names_the_jobs_that_score_it(
    evaluation: Attempt, client: TestClient, cockpit: Cockpit
) -> None:
    """With the steps of each, and its state."""
    page = words(client.get("/jobs/1").text)

    assert '<a href="/jobs/2">job 2</a>, steps 0, 2, 4: running' in page
    assert "scored by     job 2, steps 0, 2, 4: running" in cockpit("show", "1").out


def test_the_morning_report_carries_what_was_evaluated_afterwards(
    db: Database, run: RunDir, rows: Path, client: TestClient, cockpit: Cockpit
) -> None:
    """The last checkpoint beside the baseline, with interval and difference."""
    watch(db, 1, {"benches": [{"source": str(rows), "verifier": "exact"}]}, actor="test")
    queue_evaluations(db, actor="test")
    for step, score in ((0, 0.5), (2, 0.6), (4, 0.7)):
        scored(db, 2, step, score)
    with by_hand(db) as hand:
        hand.run(State.SUCCEEDED)
    today = time.strftime("%Y-%m-%d", time.localtime(time.time() + 12 * 3600))

    page = words(client.get(f"/report?date={today}").text)
    said = cockpit("report", "--date", today).out

    for shown in ("70.0 % (65.0 to 75.0)", "+20.0 points (+12.9 to +27.1), not paired"):
        assert shown in page
        assert shown in words(said)
    assert "What was evaluated afterwards" in page
    assert "job 1 was evaluated afterwards:" in said
    assert "Scored: steps 0, 2 and 4." in said
