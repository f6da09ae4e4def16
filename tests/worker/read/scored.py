"""Scores by hand, and the completions behind them, as an evaluation leaves both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.contract.intervals import wilson
from engine.contract.run_dir import RunDir
from tests.app.rollouts import row, write
from worker.attempt.scores import write_scores
from worker.db.connection import Database
from worker.queue.submit import enqueue


def job(db: Database, name: str = "run", **placement: Any) -> int:
    """One more job, of a kind that measures nothing by itself."""
    return enqueue(db, "tally", {}, actor="test", name=name, force=True, **placement)


def score(bench: str = "gsm8k", solved: int = 20, n: int = 40, **more: Any) -> dict[str, Any]:
    """Of a checkpoint: step 10 of run 1 unless said otherwise."""
    low, high = wilson(solved, n)
    step = more.get("step", 10)
    return {
        "checkpoint": "base" if step == 0 else f"step {step}",
        "base": "tiny",
        "run": 1,
        "step": step,
        "bench": bench,
        "split": bench,
        "filter": "strict-match",
        "n": n,
        "score": solved / n,
        "low": low,
        "high": high,
        "bench_hash": f"rows of {bench}",
        **more,
    }


def put(db: Database, job_id: int, *scores: dict[str, Any]) -> None:
    """Through the ingest's own verb, as events of the job."""
    events = [
        {"type": "score", "attempt": 1, "t": 1e9, "step": step, "score": one}
        for step, one in enumerate(scores)
    ]
    with db.write_tx() as conn:
        write_scores(conn, job_id, events)


def completions(
    db: Database,
    job_id: int,
    split: str,
    step: int,
    solved: Sequence[bool],
    *,
    ids: Iterable[str] | None = None,
    **more: Any,
) -> None:
    """`rollouts/heldout-SPLIT-STEP.jsonl`: row i of the bench was solved or not."""
    names = list(ids) if ids is not None else [f"q{i}" for i in range(len(solved))]
    rows = [
        row(name, text="x", reward=float(ok), success=ok, **more)
        for name, ok in zip(names, solved, strict=True)
    ]
    write(RunDir(db.settings.runs_dir / str(job_id)), f"heldout-{split}-{step:06d}", rows)
