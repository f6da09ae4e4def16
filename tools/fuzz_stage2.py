"""Fuzz stage-2's parser: mutated rollouts, the fast parser against the slow reference.

`python tools/fuzz_stage2.py --rollouts 200000` or `--seconds 60`. Prints what it ran; on a
failure the seed that repeats it, and exit code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.engine.stage2.families import FAMILIES
from tests.engine.stage2.mutations import check, draw


def main(argv: Sequence[str] | None = None) -> int:
    """0 when everything held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=200_000, help="how many to try")
    parser.add_argument("--seconds", type=float, help="stop after so long, whatever the number")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first rollout")
    options = parser.parse_args(argv)
    began = time.monotonic()
    families = [(name, build()) for name, build in FAMILIES.items()]
    last = options.seed + options.rollouts
    seed = options.seed
    while seed < last:
        name, pieces = families[seed % len(families)]
        drawn = draw(random.Random(seed), pieces)
        try:
            check(drawn, pieces)
        except Exception:
            print(f"seed {seed} ({name}) fails: {list(drawn.ids)}", file=sys.stderr)
            print(
                f"repeat: python tools/fuzz_stage2.py --seed {seed} --rollouts 1", file=sys.stderr
            )
            raise
        seed += 1
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            break
    print(f"{seed - options.seed} rollouts held in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
