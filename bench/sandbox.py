"""`make bench-sandbox`: programs a second through the box, on two cores (bound 60).

Each call is what a verifier makes: a small program, three tests, processes of its own. Exit code
1 when the bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rewards.sandbox import box

BOUND = 60


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    calls = options.calls
    tests = [f"assert add({n}, 2) == {n + 2}" for n in range(3)]
    row = json.dumps({"test_list": tests})
    pairs = [(f"def add(a, b):\n    return a + b  # {n}", row) for n in range(calls)]
    adapter = RewardAdapter(load_verifier("mbpp"))
    adapter.judge_all(pairs[:10])
    start = time.perf_counter()
    verdicts = adapter.judge_all(pairs)
    reused = calls / (time.perf_counter() - start)
    if any(verdict.reward != 1 for verdict in verdicts):
        raise SystemExit("a right program was not paid")
    start = time.perf_counter()
    for pair in pairs[:20]:
        box.close()
        adapter.judge(*pair)
    fresh_ms = (time.perf_counter() - start) / 20 * 1000
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {platform.platform()}")
    print(f"{reused:.0f} calls/s, two at once (bound {BOUND}); a box built anew: {fresh_ms:.0f} ms")
    if options.json:
        figures = {"calls_per_s": round(reused, 1), "fresh_box_ms": round(fresh_ms, 1)}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(reused < BOUND)


if __name__ == "__main__":
    sys.exit(main())
