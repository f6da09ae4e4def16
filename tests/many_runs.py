"""Runs as a month leaves them, written straight into the tables: hundreds in a second.

Every number is drawn from one seed; no engine, no file but those asked for. Knows no page.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import insert, select, update

from engine.contract.registry import get_kind
from worker.db.connection import Database
from worker.db.metrics import roll_up
from worker.db.tables import attempt, job, job_tag, ledger, metric, state_count

RECIPES = (
    ("mix-4b-lr3e-6", "/models/Qwen3-4B", 3e-6, 0.063),
    ("mix-4b-lr1e-6", "/models/Qwen3-4B", 1e-6, 0.047),
    ("smol-1.7b-format", "/models/SmolLM2-1.7B", 1e-5, 0.02),
    ("grpo-1.7b-lr1e-5", "/models/Qwen3-1.7B", 1e-5, 0.005),
    ("drgrpo-1.7b", "/models/Qwen3-1.7B", 1e-6, -0.034),
)
SEEDS = 3
GATES = range(0, 101, 10)
ROWS = 1000
HOUR = 3600.0


def fill_runs(db: Database, n: int) -> list[int]:
    """`n` finished runs of five recipes with three seeds each, every 13th failed; their numbers."""
    rng = random.Random(11)
    made = [_row(rng, i) for i in range(n)]
    with db.write_tx() as conn:
        conn.execute(insert(job), made)
        ids = list(conn.execute(select(job.c.id).order_by(job.c.id)).scalars())[-n:]
        for job_id, row in zip(ids, made, strict=True):
            _measured(conn, rng, job_id, row)
        for state in ("succeeded", "failed"):
            count = sum(row["state"] == state for row in made)
            conn.execute(
                update(state_count)
                .where(state_count.c.state == state)
                .values(n=state_count.c.n + count)
            )
    return ids


def _row(rng: random.Random, i: int) -> dict[str, Any]:
    recipe, base, lr, lift = RECIPES[i // SEEDS % len(RECIPES)]
    seed, fails = i % SEEDS, i % 13 == 12
    ended = time.time() - (i + 1) * 3 * HOUR
    config = get_kind("rl_run").config.model_validate(
        {
            "base": base,
            "lr": lr,
            "seed": seed,
            "max_steps": 100,
            "data": {"source": "/d/gsm8k.jsonl"},
        }
    )
    return {
        "kind": "rl_run",
        "name": f"{recipe}-s{seed}",
        "state": "failed" if fails else "succeeded",
        "config": json.loads(config.model_dump_json()),
        "created_at": ended - 3 * HOUR,
        "created_by": "cli:ada",
        "started_at": ended - 2 * HOUR,
        "finished_at": ended,
        "attempt": 1,
        "cause": "MEMORY" if fails else None,
        "error": "memory: 3.1 GB free at step 9, floor 4.0 GB" if fails else None,
        "group_hash": f"{recipe}-{i // (SEEDS * len(RECIPES))}",
        "result": {} if fails else _result(lift + rng.gauss(0, 0.008)),
    }


def _result(lift: float) -> dict[str, Any]:
    verdict = "gain" if lift > 0.027 else "loss" if lift < -0.027 else "no gain proven"
    return {
        "heldout_before": 0.618,
        "heldout_after": 0.618 + lift,
        "lift": lift,
        "lift_ci95": [lift - 0.027, lift + 0.027],
        "verdict": verdict,
        "report_n": ROWS,
        "step": 100,
        "max_steps": 100,
        "selected_step": 80,
        "benches": [_bench("math", lift * 0.9, 500, 0.035), _bench("gsm8k", lift / 2, 1319, 0.017)],
    }


def _bench(name: str, lift: float, n: int, half: float) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "bench",
        "n": n,
        "before": 0.58,
        "after": 0.58 + lift,
        "lift": lift,
        "ci95": [lift - half, lift + half],
        "verdict": "gain" if lift > half else "no gain proven",
    }


def _measured(conn: Any, rng: random.Random, job_id: int, row: dict[str, Any]) -> None:
    lift = row["result"].get("lift", 0.0)
    values = list(_values(rng, lift))
    conn.execute(
        insert(metric), [{"job_id": job_id, "attempt": 1, "at": None, **value} for value in values]
    )
    reach = {value["series"]: (0, 100) for value in values}
    roll_up(conn, job_id, reach)
    seconds = 2 * HOUR
    begun = {"job_id": job_id, "n": 1, "fence": 1, "lane": "test", "seconds": seconds}
    ended = {"started_at": row["started_at"], "ended_at": row["finished_at"]}
    conn.execute(insert(attempt).values(**begun, **ended, outcome=row["state"]))
    conn.execute(
        insert(ledger).values(
            at=row["finished_at"],
            day="2026-11-20",
            lane="test",
            job_id=job_id,
            attempt=1,
            entry="settle",
            seconds=seconds,
            usd=1.74,
            price_usd_h=0.87,
            actor="test",
            note="",
        )
    )
    if job_id % 4 == 0:
        conn.execute(insert(job_tag).values(job_id=job_id, tag="night"))


def _values(rng: random.Random, lift: float) -> Iterator[dict[str, Any]]:
    for step in GATES:
        score = 0.618 + lift * step / 100 + rng.gauss(0, 0.004)
        yield {"series": "heldout/select", "step": step, "value": score}
    for step in range(1, 101):
        yield {"series": "pool/score", "step": step, "value": 0.5 + step / 500 + rng.gauss(0, 0.02)}
        yield {"series": "train/kl", "step": step, "value": step / 3000}
