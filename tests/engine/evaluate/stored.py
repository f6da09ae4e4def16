"""Held-out files by hand, as gates and evaluations write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.contract.rescored import BenchAsk, BenchRescored, Completions, RescoreAsk
from engine.evaluate.rescore import rescore

SENTENCE, BOXED, HASHES, NUMBER, NOTHING = (
    *("The answer is {}.", "so \\boxed{{{}}}", "#### {}", "it must be {}", "no idea"),
)


def line(name: str, text: str, gold: str = "7", **more: Any) -> dict[str, Any]:
    """One completion, judged by strict gsm8k when it was sampled."""
    solved = text.startswith(f"The answer is {gold}.")
    return {
        "id": name,
        "sample": 0,
        "version": 20,
        "prompt": f"What is {name}?",
        "text": text,
        "answer": gold if solved else None,
        "reward": float(solved),
        "reason": "correct" if solved else "unparsed",
        "success": solved,
        "truncated": False,
        "finish_reason": "stop",
        "completion_ids": [3, 4],
        "gold": gold,
        "columns": {},
        **more,
    }


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def judged_again(
    after: Path, *verifiers: str, before: Path | None = None, **more: Any
) -> BenchRescored:
    """One bench, by the child's own function."""
    bench = BenchAsk(
        name="select",
        after=Completions(file=str(after), name="step 20", run=more.pop("run", None)),
        before=None if before is None else Completions(file=str(before), name="step 0"),
        baseline=more.pop("baseline", None),
    )
    ask = RescoreAsk(benches=[bench], verifiers=list(verifiers), **more)
    return rescore(ask).benches[0]
