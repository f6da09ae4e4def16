"""Rollout files by hand, as the engine writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from engine.contract.run_dir import RunDir


def row(
    name: str, sample: int = 0, text: str = "7", reward: float = 1.0, **more: Any
) -> dict[str, Any]:
    """One completion of an `rl_run`."""
    return {
        "id": name,
        "sample": sample,
        "version": 0,
        "text": text,
        "answer": text,
        "reward": reward,
        "reason": "correct" if reward else "wrong",
        "truncated": False,
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4],
        "logprobs": [-0.5, -0.1],
        "prompt": f"{name}=",
        **more,
    }


def heldout(solved: Sequence[bool], first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """One gate: question number i was solved or not."""
    return [
        row(f"q{first + i}", text="right" if ok else "wrong", reward=float(ok), success=ok, **more)
        for i, ok in enumerate(solved)
    ]


def picture_row(name: str, hits: int, said: int, there: int, **more: Any) -> dict[str, Any]:
    """One rollout of a `stage2_ab`."""
    objects = [
        {"desc": f"box {i}", "bbox_2d": [100 * i, 100, 100 * i + 90, 300], "matched": i < hits}
        for i in range(there)
    ]
    entries = [
        {
            "key": f"object_{i + 1}",
            "drop": None,
            "desc": f"said {i}",
            "bbox_2d": [100 * i + 5, 110, 100 * i + 95, 310],
            "match": {"object": i, "iou": 0.8, "desc_accepted": True} if i < hits else None,
        }
        for i in range(said)
    ]
    return {
        "text": "{}",
        "invalid": False,
        "truncated": False,
        "matched": hits,
        "false": said - hits,
        "missed": there - hits,
        "dropped": {},
        "record": name,
        "picture": None,
        "objects": objects,
        "entries": entries,
        **more,
    }


def write(run: RunDir, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """`rollouts/NAME.jsonl`, whole."""
    run.rollouts.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (run.rollouts / f"{name}.jsonl").write_text(text, "utf-8")


def fill_run(run: RunDir, right: float) -> None:
    """What an `rl_run` leaves: two steps of the pool, and report rows at step 0 and 40."""
    draw = random.Random(1)
    sums = [(draw.randrange(10, 99), draw.randrange(10, 99)) for _ in range(120)]
    for step in (39, 40):
        write(
            run,
            f"train-{step:06d}",
            [_summed(*one, k, right, draw) for one in sums[:8] for k in range(8)],
        )
    for step, share in ((0, 0.58), (40, right)):
        rows = [_summed(*one, 0, share, draw) for one in sums]
        for one in rows:
            one["success"] = one["reward"] == 1.0
        write(run, f"heldout-report-{step:06d}", rows)


def _summed(a: int, b: int, k: int, right: float, draw: random.Random) -> dict[str, Any]:
    ok = draw.random() < right
    text = f"{a} + {b} = {a + b if ok else a + b + 10}\n"
    return row(f"{a}+{b}", k, text, float(ok), advantage=0.5 if ok else -0.5)


def fill_boxes(run: RunDir) -> None:
    """What a `stage2_ab` leaves: a step of rollouts, some of them wrong."""
    cases = [(1, 1, 1), (1, 2, 2), (0, 1, 1), (2, 2, 3), (2, 3, 2), (0, 0, 1)]
    rows = [picture_row(f"train.jsonl line {i}", *case) for i, case in enumerate(cases, 1)]
    write(run, "train-000040", rows)
