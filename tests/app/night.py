"""A night by hand: the worker's own verbs write the rows, so that pages meet what they meet in use.

The engine's part is played by writing events; lane, claim, ingest and settlement are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.contract.events import EventLog
from engine.contract.run_dir import JobFile, RunDir, write_json
from tests.worker.holding import hold_lane
from worker.attempt.ingest import Ingest
from worker.attempt.settlement import Verdict
from worker.attempt.writing import write_verdict
from worker.db.connection import Database
from worker.lane.lease import Lease
from worker.queue.states import State
from worker.queue.submit import Claim, claim, enqueue

CONFIG: dict[str, Any] = {
    "base": "embedded:qwen3-tiny",
    "tuning": "full",
    "max_steps": 40,
    "lr": 3e-4,
    "warmup": {"target_heldout": 0.55},
}


class Attempt:
    """One running attempt whose events this test writes."""

    def __init__(self, lease: Lease, claimed: Claim) -> None:
        self.job_id = claimed.job_id
        self._lease = lease
        self._claim = claimed
        self.run = RunDir(lease.db.settings.runs_dir / str(claimed.job_id))
        job_file = JobFile(
            job_id=claimed.job_id,
            kind=claimed.kind,
            config=claimed.config,
            seed=0,
            attempt=claimed.attempt,
            fence=claimed.fence,
            cache_dir=str(lease.db.settings.cache_dir),
        )
        write_json(self.run.attempt(claimed.attempt).job_file, job_file.model_dump())
        self._events = EventLog(self.run.events, claimed.attempt)
        self._ingest = Ingest(lease, claimed.job_id, self.run)
        self.write("started", resumed_from=None)

    @property
    def result(self) -> dict[str, Any]:
        """The live result."""
        return self._ingest.result

    def add(self, type_: Any, **fields: Any) -> None:
        """One event that the next `write` brings along."""
        self._events.write(type_, **fields)

    def write(self, type_: Any, **fields: Any) -> None:
        """One event, through the real ingest into the database."""
        self.add(type_, **fields)
        self._ingest.pull()
        self._ingest.flush()

    def step(self, step: int, pool: float, values: Mapping[str, float] | None = None) -> None:
        """One optimizer step as the engine reports it."""
        self.write("metric", step=step, values={"pool/score": pool, **(values or {})})
        self.write(
            "progress", phase="training", step=step, max_steps=40, pool_score=pool, eta_s=75.0
        )

    def gate(self, step: int, score: float) -> None:
        """One held-out gate."""
        ci95 = [max(0.0, score - 0.04), min(1.0, score + 0.04)]
        self.write("gate", step=step, split="select", score=score, n=500, ci95=ci95, selected=True)

    def log(self, text: str) -> None:
        """What the engine prints."""
        self.run.attempt(self._claim.attempt).log.write_text(text)

    def finish(
        self, before: float = 0.552, after: float = 0.81, verdict: str = "gain", **more: Any
    ) -> None:
        """The engine's final result, and the settlement."""
        lift = after - before
        result = {
            "heldout_before": before,
            "heldout_after": after,
            "lift": lift,
            "lift_ci95": [lift - 0.04, lift + 0.04],
            "verdict": verdict,
            "report_n": 500,
            "selected_step": 30,
            "steps": 40,
            "seconds": 154.0,
            "peak_gb": 2.31,
            **more,
        }
        self.write("finished", status="done", result=result)
        self.settle(Verdict(State.SUCCEEDED, "the engine finished"))

    def close(self) -> None:
        """Put the pen down."""
        self._events.close()

    def settle(self, verdict: Verdict) -> None:
        """Write how the attempt ended."""
        write_verdict(self._lease, self.job_id, self._claim.attempt, verdict)


class Night:
    """The lane, held by this test."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.db = lease.db
        self._attempts: list[Attempt] = []

    def start(self) -> Attempt:
        """Claim the oldest queued job."""
        with self.db.write_tx() as conn:
            taken = claim(conn, lane=self.lease.lane, fence=self.lease.fence + 1, actor="drain:1")
            assert taken is not None, "nothing is queued"
            self.lease.advance(conn, taken.job_id)
        self.lease.fence = taken.fence
        self._attempts.append(Attempt(self.lease, taken))
        return self._attempts[-1]

    def close(self) -> None:
        """The engines are gone; their jobs stay as they are."""
        for attempt in self._attempts:
            attempt.close()


def queue(db: Database, name: str | None = None, **config: Any) -> int:
    """One more `rl_run`."""
    return enqueue(db, "rl_run", CONFIG | config, actor="test", name=name, force=True)


@contextmanager
def night(db: Database) -> Iterator[Night]:
    """Hold the lane as a drain would."""
    with hold_lane(db, db.settings) as lease:
        made = Night(lease)
        try:
            yield made
        finally:
            made.close()
