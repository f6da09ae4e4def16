"""Rollout files by hand, as the engine writes them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw

from engine.contract.intervals import wilson
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
    """What an `rl_run` leaves: two steps of the pool, select rows, report rows at step 0 and 40."""
    draw = random.Random(1)
    sums = [(draw.randrange(10, 99), draw.randrange(10, 99)) for _ in range(120)]
    for step in (39, 40):
        groups = [[_summed(*one, k, right, draw) for k in range(8)] for one in sums[:8]]
        for group in groups:
            mean = sum(one["reward"] for one in group) / len(group)
            for one in group:
                one["advantage"] = one["reward"] - mean
        write(run, f"train-{step:06d}", [one for group in groups for one in group])
    for step in (0, 20, 40):
        share = 0.58 + (right - 0.58) * step / 40
        write(run, f"heldout-select-{step:06d}", [_summed(*one, 0, share, draw) for one in sums])
    for step, share in ((0, 0.58), (40, right)):
        rows = [_summed(*one, 0, share, draw) for one in sums]
        for one in rows:
            one["success"] = one["reward"] == 1.0
        write(run, f"heldout-report-{step:06d}", rows)


def _summed(a: int, b: int, k: int, right: float, draw: random.Random) -> dict[str, Any]:
    ok = draw.random() < right
    text = f"{a} + {b} = {a + b if ok else a + b + 10}\n"
    columns = {"level": f"Level {a % 3 + 1}"}
    more: dict[str, Any] = {
        "answer": str(a + b if ok else a + b + 10),
        "gold": str(a + b),
        "columns": columns,
    }
    return row(f"{a}+{b}", k, text, float(ok), **more)


BENCHES = {"gsm8k": (0.41, 1319), "ifeval": (0.55, 541), "math_qwen": (0.28, 40)}
"""Share of its rows that the base solves, and how many rows; of the last the completions stay."""


def bench_scores(run: int, step: int, above: float) -> list[dict[str, Any]]:
    """What a checkpoint scores on three benches, one of them with another filter too."""
    asked = (
        ("gsm8k", "strict-match", above / 2),
        ("gsm8k", "flexible-extract", above / 2 + 0.06),
        ("math_qwen", "strict-match", above / 2),
        ("ifeval", "prompt_level", -above / 4),
    )
    return [_bench_score(bench, name, run, step, more) for bench, name, more in asked]


def _bench_score(bench: str, filter_: str, run: int, step: int, above: float) -> dict[str, Any]:
    share, n = BENCHES[bench]
    solved = round((share + above) * n)
    low, high = wilson(solved, n)
    return {
        "checkpoint": "base" if step == 0 else f"step {step}",
        "base": "embedded:qwen3-tiny",
        "run": run,
        "step": step,
        "bench": bench,
        "split": bench,
        "shots": 8 if bench == "gsm8k" else 0,
        "filter": filter_,
        "n": n,
        "score": solved / n,
        "low": low,
        "high": high,
        "truncated": 0.03,
        "unparsed": 0.11 if filter_ == "strict-match" else 0.0,
        "max_new_tokens": 1024,
        "bench_hash": hashlib.sha256(f"{bench} {filter_}".encode()).hexdigest(),
        "parts": [{"by": "level", "name": f"Level {i}", "n": 8, "score": i / 8} for i in (1, 2)],
    }


ASKED = "For real $x > 1$, let $f(x) = \\frac{x^2 - 4x + 7}{x - 1}$. What is its smallest value?"
PROOF = r"""The denominator suggests shifting the variable. Put $t = x - 1$, so that $t > 0$.

### Step 1: rewrite the numerator

\[
(t+1)^2
- 4(t+1) + 7 = t^2 - 2t + 4
\]

Dividing by $t$ gives a sum that is **easy to bound**:

$$f(x) = \frac{t^2 - 2t + 4}{t} = t + \frac{4}{t} - 2$$

### Step 2: bound it

By the inequality of the means,
\(t + \frac{4}{t} \ge 2\sqrt{t \cdot \frac{4}{t}} = 4\), with equality at $t = 2$.

### Step 3: check by calculating

A short program tries five values around that point. It shows that the bound is reached at three,
that nothing near it is smaller, and that the values rise on both sides of it without an end.

```python
def f(x):
    return (x**2 - 4*x + 7) / (x - 1)

print([round(f(x), 4) for x in (2.0, 2.5, 3.0, 3.5, 4.0)])  # 3.0, 2.1667, 2.0, 2.1, 2.3333
```

| x | f(x) |
|---|---|
| 2 | 3 |
| 3 | 2 |

1. At $x = 2$ the value is 3, at $x = 4$ it is $\frac{7}{3}$.
2. Both exceed 2, and the function grows without bound at either end.

The smallest value is therefore \boxed{2}.
"""
"""A long answer with all that a reader has to draw."""


def fill_bench(run: RunDir, step: int, above: float) -> None:
    """The completions behind the score on the smallest of the benches; the first one is long."""
    share, n = BENCHES["math_qwen"]
    solved = round((share + above / 2) * n)
    rows = heldout([i < solved for i in range(n)])
    rows[0] |= {"prompt": ASKED, "text": PROOF, "answer": "2", "gold": "2"}
    write(run, f"heldout-math_qwen-{step:06d}", rows)


SHAPES = ("red square", "blue square", "green square", "yellow square")
PLACES = ([80, 120, 380, 420], [520, 90, 900, 400], [140, 560, 400, 900], [560, 540, 930, 930])


def fill_boxes(run: RunDir) -> None:
    """What a `stage2_ab` leaves: a step of rollouts over drawn squares, some of them wrong."""
    cases = [(1, 1, 1), (1, 2, 2), (0, 1, 1), (2, 2, 3), (2, 3, 2), (0, 0, 1)]
    rows = [_squares(run, f"train.jsonl line {i}", *case) for i, case in enumerate(cases, 1)]
    write(run, "train-000040", rows)


def _squares(run: RunDir, name: str, hits: int, said: int, there: int) -> dict[str, Any]:
    """A row with its picture: what is there is drawn, what was said lies near it or beside it."""
    found = picture_row(name, hits, said, there)
    for place, one in enumerate(found["objects"]):
        one |= {"desc": SHAPES[place], "bbox_2d": PLACES[place]}
    for place, one in enumerate(found["entries"]):
        hit = place < hits
        near = [side + 12 * (1 if hit else -5) for side in PLACES[place if hit else 3]]
        one |= {"desc": SHAPES[place], "bbox_2d": near}
    taught = [
        {
            "text": '{"desc": "',
            "tokens": 4,
            "part": "structure",
            "source": "matched",
            "weight": 1.0,
        },
        {"text": SHAPES[0], "tokens": 2, "part": "desc", "source": "matched", "weight": 0.5},
        {"text": '"}, {"desc": "', "tokens": 4, "part": "structure", "source": "FN", "weight": 1.0},
        {"text": SHAPES[1], "tokens": 2, "part": "desc", "source": "FN", "weight": 0.2},
    ]
    picture = _picture(run, name, [one["bbox_2d"] for one in found["objects"]])
    return found | {"picture": picture, "spans": {"answer": taught, "b2": None, "b3": taught}}


def _picture(run: RunDir, name: str, boxes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """A drawing of 320 × 240 beside the rollouts, called as the engine calls it."""
    image = Image.new("RGB", (320, 240), "#d8dcd2")
    pen = ImageDraw.Draw(image)
    for colour, (x1, y1, x2, y2) in zip(("#b03a3a", "#3a5cb0", "#3a8a4c"), boxes, strict=False):
        pen.rectangle((x1 * 0.32, y1 * 0.24, x2 * 0.32, y2 * 0.24), fill=colour)
    folder = run.rollouts / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    file_name = f"{hashlib.sha256(name.encode()).hexdigest()[:20]}.jpg"
    image.save(folder / file_name, "JPEG")
    return {"name": file_name, "width": 320, "height": 240}
