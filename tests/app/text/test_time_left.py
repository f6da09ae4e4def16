"""How long a run needs yet counts down, on every page that says it."""

from __future__ import annotations

import doctest
import re
import time

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from tests.app.night import Attempt, night, queue
from tests.app.pages.test_pages import words
from worker.db.connection import Database
from worker.db.tables import job
from worker.estimate import time_left

PAGES = ("/", "/?state=running", "/jobs/1", "/queue", "/strip")


def _said(db: Database, attempt: Attempt, minutes_ago: float) -> None:
    """As if its engine had expected an hour more so long ago, and said nothing since."""
    result = attempt.result | {"eta_s": 3600.0, "eta_at": time.time() - 60 * minutes_ago}
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == attempt.job_id).values(result=result))


def test_the_example_of_time_left_holds() -> None:
    """Stated once, beside the function."""
    assert doctest.testmod(time_left).failed == 0


@pytest.mark.requirement("UI-01")
@pytest.mark.parametrize(
    ("minutes_ago", "says"), [(21, r"about 3\d min left"), (91, r"overdue by 3\d min")]
)
def test_time_left_counts_down_between_two_words_of_the_engine(
    client: TestClient, db: Database, minutes_ago: float, says: str
) -> None:
    """And is overdue behind its end; the strip, the board, the queue and the run agree."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(12, 0.6)
        _said(db, attempt, minutes_ago)
        for address in PAGES:
            assert re.search(says, words(client.get(address).text)), address
        attempt.finish()


@pytest.mark.parametrize("expected", [1e15, 1e300, -1e15])
def test_an_end_that_nobody_will_see_is_not_told(
    client: TestClient, db: Database, expected: float
) -> None:
    """Beyond ten years nobody can tell, and every page stands."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(12, 0.6)
        attempt.write("progress", eta_s=expected)
        for address in PAGES:
            answer = client.get(address)
            assert answer.status_code == 200
            assert not re.search(r"overdue|about .* left", words(answer.text)), address
        attempt.finish()


@pytest.mark.requirement("UI-11")
def test_nobody_expects_anything_of_a_run_without_a_sign_of_life(
    client: TestClient, db: Database
) -> None:
    """Its drain died: minutes that count down would say that it goes on."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(12, 0.6)
        _said(db, attempt, 21)
        silent = time.time() - db.settings.lease_s - 60
        with db.write_tx() as conn:
            conn.execute(update(job).values(heartbeat_at=silent))
        for address in PAGES:
            text = words(client.get(address).text)
            assert "stale" in text, address
            assert not re.search(r"min left|overdue", text), address
        attempt.finish()
