"""A kind of job that scores the checkpoints it is told to, for tests of the whole way."""

from __future__ import annotations

SCORER = """
from pydantic import BaseModel, ConfigDict

from engine.contract.intervals import wilson
from engine.contract.jsonl import write_rows
from engine.contract.kind import Kind

STEPS = (0, 10)
ROWS = 40


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    base: str = "tiny"
    solved: dict[str, list[int]] = {}  # bench -> of 40 rows, at step 0 and at step 10


def run(attempt):
    config, run = attempt.config, attempt.job.job_id
    attempt.events.write("started", resumed_from=None)
    for bench, counts in config.solved.items():
        for step, count in zip(STEPS, counts, strict=True):
            rows = [
                {"id": f"q{i}", "sample": 0, "prompt": f"question {i}", "text": "x", "answer": "x",
                 "reward": float(i < count), "reason": "correct" if i < count else "wrong",
                 "success": i < count, "truncated": False,
                 "judged": {"strict-match": {"success": i < count}}}
                for i in range(ROWS)
            ]
            write_rows(attempt.run.rollouts / f"heldout-{bench}-{step:06d}.jsonl", rows)
            low, high = wilson(count, ROWS)
            score = {
                "checkpoint": "base" if step == 0 else f"step {step}", "base": config.base,
                "run": run, "step": step, "bench": bench, "split": bench, "filter": "strict-match",
                "n": ROWS, "score": count / ROWS, "low": low, "high": high,
                "truncated": 0.1, "unparsed": 0.2, "bench_hash": f"rows of {bench}",
            }
            attempt.events.write("score", step=step, score=score)
        for step in STEPS:
            attempt.events.write(
                "gate", step=step, split="select", score=0.5, n=100, ci95=[0.4, 0.6]
            )
    return {"kind": "scorer", "selected_step": 10, "published_step": 0}


KIND = Kind(name="scorer", summary="Scores.", config=Config, entry=f"{__name__}:run", model="base")
"""
