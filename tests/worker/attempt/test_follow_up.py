"""A run's gain queues a requant behind it: once, and after no other verdict."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.run_dir import RunDir
from tests.engine.conftest import base_folder, base_recipe, sevens_file
from tests.engine.requant.conftest import full_run
from tests.worker.queue.verbs import Hand, by_hand
from worker.attempt.follow_up import follower_of
from worker.db.connection import Database
from worker.db.tables import job
from worker.lane.lease import Lease
from worker.queue.states import State
from worker.queue.submit import Claim, enqueue
from worker.read import jobs
from worker.read.follow_ups import requant_of_job

__all__ = ["base_folder", "base_recipe", "full_run", "sevens_file"]

Ended = Callable[..., Claim]
pytestmark = pytest.mark.requirement("JB-11")


@pytest.fixture
def ended(db: Database, base_recipe: dict[str, Any], full_run: RunDir) -> Ended:
    """A claimed run whose engine has ended with a verdict and a checkpoint."""

    def make(hand: Hand, verdict: str, *, asks: bool = True) -> Claim:
        follows = {"requant": {"formats": ["int8"]}} if asks else {}
        enqueue(db, "rl_run", base_recipe | follows, actor="test", force=True, priority=5)
        taken = hand.claim()
        assert taken is not None
        place = db.settings.runs_dir / str(taken.job_id)
        shutil.copytree(full_run.root, place, symlinks=True)
        with db.write_tx() as conn:
            mine = update(job).where(job.c.id == taken.job_id)
            conn.execute(mine.values(result={"verdict": verdict}))
        return taken

    return make


def requants(db: Database) -> list[jobs.JobView]:
    return [one for one in jobs.list_jobs(db) if one.kind == "requant"]


def words(db: Database, job_id: int) -> str:
    found = requant_of_job(db, jobs.get_job(db, job_id))
    assert found is not None
    return found.words


def test_a_gain_queues_a_requant_of_what_was_published(db: Database, ended: Ended) -> None:
    """It runs after the run, with its priority, on the checkpoint that `selected` leads to."""
    with by_hand(db) as hand:
        taken = ended(hand, "gain")

        hand.settle(taken, State.SUCCEEDED)

        [made] = requants(db)
        assert (made.after, made.priority, made.state) == ([taken.job_id], 5, State.QUEUED)
        published = (db.settings.runs_dir / str(taken.job_id) / "selected").resolve()
        assert Path(made.config["base"]).parent == published
        assert words(db, taken.job_id) == f"job {made.id}, after the gain"
        following = hand.claim()
        assert following is not None
        assert following.job_id == made.id


@pytest.mark.parametrize("verdict", ["pool only", "no gain proven", "loss", "no verdict"])
def test_no_other_verdict_queues_one_and_why_is_said(
    verdict: str, db: Database, ended: Ended
) -> None:
    """A pool that rose is no gain."""
    with by_hand(db) as hand:
        taken = ended(hand, verdict)

        hand.settle(taken, State.SUCCEEDED)

        assert requants(db) == []
        assert words(db, taken.job_id) == (
            f"none: the verdict is {verdict}, and it follows a gain alone"
        )
        assert hand.claim() is None


@pytest.mark.parametrize("to", [State.FAILED, State.CANCELLED, State.QUEUED])
def test_a_run_that_did_not_succeed_queues_none(to: State, db: Database, ended: Ended) -> None:
    """Whatever its result said when it ended."""
    with by_hand(db) as hand:
        taken = ended(hand, "gain")

        hand.settle(taken, to)

        assert requants(db) == []


def test_a_run_that_asks_for_none_gets_none(db: Database, ended: Ended) -> None:
    """Nothing is said of it either."""
    with by_hand(db) as hand:
        taken = ended(hand, "gain", asks=False)

        hand.settle(taken, State.SUCCEEDED)

        assert requants(db) == []
        assert requant_of_job(db, jobs.get_job(db, taken.job_id)) is None


def test_a_settlement_that_breaks_off_leaves_no_job_and_the_next_one_makes_one(
    db: Database, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run and follow-up change in one transaction."""
    with by_hand(db) as hand:
        taken = ended(hand, "gain")
        with monkeypatch.context() as patch:
            patch.setattr(Lease, "clear_job", lambda *_: 1 / 0)  # after the job was made
            with pytest.raises(ZeroDivisionError):
                hand.settle(taken, State.SUCCEEDED)
        assert requants(db) == []
        assert jobs.get_job(db, taken.job_id).state is State.RUNNING

        hand.settle(taken, State.SUCCEEDED)

        [made] = requants(db)
        with db.read() as conn:
            assert follower_of(conn, taken.job_id) == made.id


def test_what_keeps_it_from_being_made_is_said_and_the_run_is_settled(
    db: Database, ended: Ended
) -> None:
    """A checkpoint that is gone when the run is settled."""
    with by_hand(db) as hand:
        taken = ended(hand, "gain")
        shutil.rmtree(db.settings.runs_dir / str(taken.job_id) / "checkpoints")

        hand.settle(taken, State.SUCCEEDED)

        assert jobs.get_job(db, taken.job_id).state is State.SUCCEEDED
        assert requants(db) == []
        assert words(db, taken.job_id).startswith("none: base: ")
        assert any("no job follows it: " in one.why for one in jobs.audit(db, taken.job_id))
