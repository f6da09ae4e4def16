"""Prove that a change of the code changes no bit: both demos in small, and what they came to.

`python -m tools.proof --output before.json`, then after the change `python -m tools.proof
--compare before.json`, which says leaf by leaf what differs and fails then. Recorded are hashes of
all weights, optimizers and rollouts, and states, metrics, gates, reports and run cards without
their times, and the events in their order. Hashes hold on one machine alone: what is compared are
two checkouts on it (`--checkout`).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.enqueue import assign
from engine.contract.documents import parse_yaml
from engine.contract.run_dir import RunDir
from tools import file_order
from tools.run_outcome import add_attempt, differences, events_of, outcome

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Demo:
    """One recipe of `examples/`, made small."""

    kind: str
    example: str
    settings: Sequence[str]
    """Assignments, as `cockpit enqueue --set` takes them; `{place}` is where all runs lie."""


_SIX_STEPS = (
    *("stage2_ab.schedule.b_ratio=0.5", "training.max_steps=6", "training.eval_steps=3"),
    *("training.save_steps=2", "keep_checkpoints=2", "data.val_limit=32", "data.report_limit=48"),
    *("custom.extra.rollout_matching.iou_gate=0.3", "warmup.target_f1=0.05"),
)
DEMOS = {
    "rl_run": Demo(
        "rl_run",
        "demo.yaml",
        (
            *("warmup.target_heldout=0.3", "max_steps=6", "heldout_every=3"),
            *("save_every=2", "keep_checkpoints=2"),
        ),
    ),
    "stage2_ab": Demo("stage2_ab", "stage2_ab.yaml", (*_SIX_STEPS, "warmup.eval_every=10")),
    # From what the run before began with, so that a model of its own is kept for the adapter;
    # with this seed and rate its last step is the best.
    "stage2_ab-dora": Demo(
        "stage2_ab",
        "stage2_ab.yaml",
        (
            *(*_SIX_STEPS, "warmup.eval_every=2", "model.tuning=dora"),
            *("model.path={place}/stage2_ab/checkpoints/checkpoint-0",),
            *("training.seed=4", "training.learning_rate=2.0e-3"),
        ),
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every run ended well and, where it was compared, nothing differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose engine is to run")
    parser.add_argument("--kind", choices=sorted({demo.kind for demo in DEMOS.values()}))
    parser.add_argument("--order", action="store_true", help="the order of file operations too")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="what was recorded before")
    parser.add_argument("--output", type=Path, metavar="FILE", help="instead of standard output")
    options = parser.parse_args(argv)
    before = json.loads(options.compare.read_bytes()) if options.compare else None
    if before and options.order != all("order" in run for run in before.values()):
        parser.error(f"{options.compare} was recorded {'without' if options.order else 'with'} it")
    names = [name for name, demo in DEMOS.items() if options.kind in {None, demo.kind}]
    with _place() as place:
        now = {
            name: _recorded(name, place, options.checkout.resolve(), options.order)
            for name in names
        }
    if options.output or not before:
        text = json.dumps(now, indent=1, sort_keys=True) + "\n"
        (options.output.write_text if options.output else sys.stdout.write)(text)
    if not before:
        return 0
    found = differences(now, {name: before.get(name) for name in names})
    print("\n".join(found) or "nothing differs")
    return 1 if found else 0


@contextmanager
def _place() -> Iterator[Path]:
    """An empty folder of the same name each time: thumbnails are named after whole paths."""
    place = Path(tempfile.gettempdir()) / f"nightlane-proof-{os.getuid()}"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one proof after the other
        for old in place.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        yield place


def _recorded(name: str, place: Path, checkout: Path, order: bool) -> dict[str, Any]:
    """Run a demo; what it came to."""
    demo = DEMOS[name]
    recipe = parse_yaml((ROOT / "examples" / demo.example).read_text("utf-8"))
    for setting in demo.settings:
        assign(recipe, setting.format(place=place))
    # as it was written: another checkout may have other defaults
    run = add_attempt(place, recipe, name=name, kind=demo.kind, valid=False)
    operations = place / f"{name}.order" if order else None
    began = time.monotonic()
    _run(run, checkout, operations)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    found = outcome(run) | {"events": [file_order.label(event) for event in events_of(run)]}
    if operations:
        found["order"] = operations.read_text("utf-8").splitlines()
    return found


def _run(run: RunDir, checkout: Path, operations: Path | None) -> None:
    """Raises SystemExit with the end of the log when the run does not end well."""
    python = str(checkout / ".venv/bin/python")
    command = ["-m", "engine", "run", str(run.root)]
    if operations:
        command = [file_order.__file__, str(operations), str(run.root)]
    log = run.attempt(1).log
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as stream:
        done = subprocess.run(
            [python, *command],
            cwd=checkout,
            env=environment,
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if done.returncode:
        tail = log.read_text("utf-8", "replace")[-3000:]
        raise SystemExit(f"{run.root} ended with {done.returncode}:\n{tail}")


if __name__ == "__main__":
    sys.exit(main())
