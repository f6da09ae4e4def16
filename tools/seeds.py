"""The demo over the five seeds named in docs/experiments.md, and a control that cannot learn.

Each runs through the whole product: `cockpit demo --json`. Prints the rows for that document and
fails unless every seed shows a gain and the control shows none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SEEDS = (101, 102, 103, 104, 105)
CONTROL_SEED = 101
HEAD = "| run | before | after | lift | 95 % interval | verdict | steps | seconds | peak GB |"


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all five gained and the control did not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8767)
    options = parser.parse_args(argv)
    print_head()
    gained = [_row(f"seed {seed}", seed, options.port) == "gain" for seed in SEEDS]
    control = _row(f"seed {CONTROL_SEED}, lr 0", CONTROL_SEED, options.port, "--set", "lr=0")
    return 0 if all(gained) and control == "no gain proven" else 1


def _row(label: str, seed: int, port: int, *more: str) -> str:
    """Run one demo in a directory of its own and print its row; returns the verdict."""
    with tempfile.TemporaryDirectory(prefix="nightlane-seed-") as folder:
        found = demo(Path(folder), "--seed", str(seed), "--port", str(port), *more)
    print_row(label, found)
    return str(found["verdict"])


def demo(folder: Path, *arguments: str) -> dict[str, Any]:
    """What `cockpit demo --json` says of a run in this data directory."""
    command = [sys.executable, "-m", "app.cli", "--data-dir", str(folder), "demo", "--json"]
    done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def print_head() -> None:
    """Of the table that `print_row` goes on with."""
    print(HEAD)
    print("|---" * HEAD.count(" | ") + "|---|", flush=True)


def print_row(label: str, found: Mapping[str, Any]) -> None:
    """One run, as docs/experiments.md has it."""
    low, high = found["lift_ci95"]
    print(
        f"| {label} | {found['heldout_before']:.3f} | {found['heldout_after']:.3f} "
        f"| {found['lift']:+.3f} | {low:+.3f} … {high:+.3f} | {found['verdict']} "
        f"| {found['steps']} | {found['seconds']:.0f} | {found['peak_gb']:.2f} |",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
