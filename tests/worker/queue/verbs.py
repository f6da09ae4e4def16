"""The worker's verbs by hand: what a drain would do to a job, without a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.contract.run_dir import JobFile, RunDir, write_json
from tests.worker.holding import hold_lane
from worker.attempt.settlement import Verdict
from worker.attempt.writing import Settled, write_verdict
from worker.db.connection import Database
from worker.lane.lease import Lease
from worker.queue.deferral import wake_due
from worker.queue.states import State
from worker.queue.submit import Claim, claim


class Hand:
    """A lane, held by the test."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.db = lease.db

    def claim(self, now: float | None = None) -> Claim | None:
        """What the next claim takes."""
        with self.db.write_tx() as conn:
            if now is not None:
                wake_due(conn, now)
            taken = claim(conn, lane=self.lease.lane, fence=self.lease.fence + 1, actor="drain:1")
            if taken:
                self.lease.advance(conn, taken.job_id)
        if taken:
            self.lease.fence = taken.fence
        return taken

    def settle(self, taken: Claim, to: State, **known: Any) -> Settled:
        """How its attempt ended."""
        verdict = Verdict(to, "settled by hand", **known)
        return write_verdict(self.lease, taken.job_id, taken.attempt, verdict)

    def run(self, to: State = State.SUCCEEDED) -> int:
        """Claim the next job and settle it. Returns its id."""
        taken = self.claim()
        assert taken is not None, "nothing can be claimed"
        self.settle(taken, to)
        return taken.job_id

    def order(self) -> list[int]:
        """The ids that claims take, one after the other, until none is left."""
        found = []
        while (taken := self.claim()) is not None:
            self.settle(taken, State.SUCCEEDED)
            found.append(taken.job_id)
        return found


@contextmanager
def by_hand(db: Database) -> Iterator[Hand]:
    """Hold the lane of the settings inside the block."""
    with hold_lane(db, db.settings) as lease:
        yield Hand(lease)


def begin(db: Database, taken: Claim) -> RunDir:
    """The attempt's directory, as a supervisor leaves it before the engine starts."""
    run = RunDir(db.settings.runs_dir / str(taken.job_id))
    job_file = JobFile(
        job_id=taken.job_id,
        kind=taken.kind,
        config=taken.config,
        seed=0,
        attempt=taken.attempt,
        fence=taken.fence,
        cache_dir=str(db.settings.cache_dir),
    )
    write_json(run.attempt(taken.attempt).job_file, job_file.model_dump())
    return run
