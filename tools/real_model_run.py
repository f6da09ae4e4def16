"""Run `examples/smollm2.yaml` through the whole product and check what a real model must hold.

Prepares the model's folder first (`tools/real_model.py`). Prints one line a check and two rollouts
to be read by eye; fails when a check does. Minutes on a CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.real_model import default_cache, prepare

ROOT = Path(__file__).resolve().parent.parent
GAP = 1e-3
"""Largest difference of a token's log-probability between sampler and trainer, in nats."""
ENDS = {0, 2}
"""`<|endoftext|>` and `<|im_end|>` of this model."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every check held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    folder = prepare(options.cache)
    with tempfile.TemporaryDirectory(prefix="nightlane-real-") as place:
        job = _run(Path(place), folder, options.set)
        run = Path(place) / "runs" / "1"
        rollouts = list(_rows(run.glob("rollouts/train-*.jsonl")))
        metrics = [e for e in _rows([run / "events.jsonl"]) if e["type"] == "metric"]
        checks = _checks(job, rollouts, metrics)
        for what, held in checks.items():
            print(f"{'ok  ' if held else 'FAIL'}  {what}")
        _show(job, rollouts)
    return 0 if all(checks.values()) else 1


def _run(place: Path, folder: Path, settings: Sequence[str]) -> Mapping[str, Any]:
    """Enqueue, drain, and the job as `cockpit show` tells it."""
    chosen = [word for setting in (f"base={folder}", *settings) for word in ("--set", setting)]
    recipe = str(ROOT / "examples" / "smollm2.yaml")
    _cockpit(place, "enqueue", "rl_run", recipe, *chosen)
    _cockpit(place, "drain")
    job: Mapping[str, Any] = json.loads(_cockpit(place, "show", "1", "--json"))
    return job


def _cockpit(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "app.cli", "--data-dir", str(place), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    return done.stdout


def _checks(
    job: Mapping[str, Any], rollouts: Sequence[Mapping[str, Any]], metrics: Sequence[Any]
) -> dict[str, bool]:
    result = job["result"] or {}
    gaps = [e["values"]["train/sampler_gap_max"] for e in metrics if "train/loss" in e["values"]]
    ended = {r["completion_ids"][-1] for r in rollouts if not r["truncated"]}
    turns = {tuple(r["prompt_ids"][-3:]) for r in rollouts}
    return {
        f"the job {job['state']}, {len(rollouts)} rollouts": job["state"] == "succeeded",
        f"sampler and trainer differ by {max(gaps, default=1):.1e} nats at most (under {GAP:g})": (
            max(gaps, default=1.0) < GAP
        ),
        f"held-out gates at {', '.join(result.get('heldout_scores', {}))}": (
            len(result.get("heldout_scores", {})) >= 2
        ),
        f"a verdict on {result.get('report_n')} rows: {result.get('verdict')}": (
            result.get("verdict") is not None
        ),
        f"completions end with {sorted(ended)} or are truncated": bool(ended) and ended <= ENDS,
        "every prompt ends with the chat template's assistant turn": len(turns) == 1,
        "no completion shows a special token": not any("<|" in r["text"] for r in rollouts),
    }


def _show(job: Mapping[str, Any], rollouts: Sequence[Mapping[str, Any]]) -> None:
    """The run's numbers, and two completions that were right and two that were wrong."""
    result = job["result"] or {}
    names = ("heldout_before", "heldout_after", "lift_ci95", "seconds", "peak_gb", "pool_scores")
    print(json.dumps({name: result.get(name) for name in names}))
    print(json.dumps(result.get("upstream", {}).get("sft_init")))
    for reason in ("correct", "wrong"):
        texts = {row["text"]: row for row in rollouts if row["reason"] == reason}
        for row in list(texts.values())[:2]:
            print(f"\n--- {reason}, reward {row['reward']}\n{row['prompt']}\n>>> {row['text']}")


def _rows(paths: Any) -> Iterator[dict[str, Any]]:
    for path in sorted(paths):
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
