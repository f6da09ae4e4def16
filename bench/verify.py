"""`make bench-verify`: the verifier pool before and after a thousand hanging inputs.

Shows three bounds: throughput after 1,000 hung comparisons at least 0.9 of before, at least 50
times a fresh process a call on symbolic comparisons, answers in the order of their questions.
Exit code 1 when one does not hold.

The machine's own speed moves by more than that tenth within the minutes between before and after.
So a second pool, which never sees a hanging input, takes every round in turn with the first, and
the ratio is that of the two pools after, over that of the two pools before.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.rewards.judgement import Reason
from engine.rewards.workers.pool import Pool, Question

HANGING = Question("math", r"$\boxed{2^{10^{9}}}$", "7")
WALL_S = 5.0
HANGING_WALL_S = 0.25
"""Shorter, or a thousand hung inputs take 42 minutes; what is killed is the same."""
FRESH = (
    "import sys; from engine.rewards.verifiers.math import verify; "
    "print(verify(sys.argv[1], sys.argv[2]).reward)"
)


@dataclass(frozen=True)
class Rates:
    """Judgements a second in one round."""

    hung: float
    spared: float


def symbolic(count: int) -> list[Question]:
    """Comparisons that need algebra; every third is wrong."""
    return [
        Question(
            "math",
            rf"$\boxed{{\frac{{{n}}}{{2}}x + {n}}}$",
            rf"\frac{{{n}(x+2)}}{{2}}" if n % 3 else rf"\frac{{{n}(x+3)}}{{2}}",
        )
        for n in range(1, count + 1)
    ]


def per_second(pool: Pool, questions: list[Question]) -> float:
    """Judgements a second; raises when an answer is not its question's."""
    start = time.perf_counter()
    verdicts = pool.ask(questions)
    seconds = time.perf_counter() - start
    wanted = [Reason.CORRECT if n % 3 else Reason.WRONG for n in range(1, len(questions) + 1)]
    found = [verdict.reason for verdict in verdicts]
    if found != wanted:
        wrong = [n for n, (a, b) in enumerate(zip(found, wanted, strict=True)) if a is not b]
        raise SystemExit(f"{len(wrong)} answers are not their questions', e.g. {found[wrong[0]]}")
    return len(questions) / seconds


def fresh_per_second(count: int) -> float:
    """The same with a new interpreter for each call."""
    start = time.perf_counter()
    for question in symbolic(count):
        subprocess.run(
            [sys.executable, "-c", FRESH, question.completion, question.expected],
            check=True,
            capture_output=True,
        )
    return count / (time.perf_counter() - start)


def in_turn(hung: Pool, spared: Pool, questions: list[Question], rounds: int) -> list[Rates]:
    """Rates of both pools, round by round; each round the other pool begins."""
    found = []
    for turn in range(rounds):
        pools = (hung, spared) if turn % 2 else (spared, hung)
        rates = {id(pool): per_second(pool, questions) for pool in pools}
        found.append(Rates(rates[id(hung)], rates[id(spared)]))
    return found


def ratio_of(rounds: list[Rates]) -> float:
    """The hung pool's throughput in units of the spared one's: median over the rounds."""
    return statistics.median(rates.hung / rates.spared for rates in rounds)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hanging", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    questions = symbolic(options.questions)
    with Pool(workers=2, wall_s=WALL_S) as pool, Pool(workers=2, wall_s=WALL_S) as spared:
        for each in (pool, spared):
            each.load("math")
            per_second(each, questions)  # caches warm, as in a run
        before = in_turn(pool, spared, questions, options.rounds)
        start = time.perf_counter()
        pool.wall_s = HANGING_WALL_S
        verdicts = pool.ask([HANGING] * options.hanging)
        pool.wall_s = WALL_S
        hung_s = time.perf_counter() - start
        timeouts = sum(verdict.reason is Reason.TIMEOUT for verdict in verdicts)
        per_second(pool, questions)  # its workers are new: caches warm again
        after = in_turn(pool, spared, questions, options.rounds)
    fresh = fresh_per_second(8)
    rate_before = statistics.median(rates.hung for rates in before)
    rate_after = statistics.median(rates.hung for rates in after)
    kept = ratio_of(after) / ratio_of(before)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {platform.platform()}")
    print(f"symbolic comparisons, 2 workers: {rate_before:.0f}/s, median of {len(before)} rounds")
    print(f"{timeouts} of {options.hanging} hanging inputs timed out in {hung_s:.0f} s")
    print(f"afterwards: {rate_after:.0f}/s; a pool that was spared, in the same minutes:")
    print(f"  before {spread(before)}; after {spread(after)}")
    print(f"after over before: {kept:.3f} (bound 0.90)")
    times = rate_before / fresh
    print(f"a fresh process a call: {fresh:.2f}/s; the pool: {times:.0f} times (bound 50)")
    print("order kept: yes")
    figures = {
        "before_per_s": round(rate_before, 1),
        "after_per_s": round(rate_after, 1),
        "after_over_before": round(kept, 3),
        "rounds": options.rounds,
        "hanging": options.hanging,
        "timed_out": timeouts,
        "fresh_process_per_s": round(fresh, 3),
        "pool_over_fresh": round(rate_before / fresh, 1),
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    holds = kept >= 0.9 and rate_before >= 50 * fresh and timeouts == options.hanging
    return int(not holds)


def spread(rounds: list[Rates]) -> str:
    """Median and range of hung over spared."""
    ratios = [rates.hung / rates.spared for rates in rounds]
    return f"{ratio_of(rounds):.3f} ({min(ratios):.2f} to {max(ratios):.2f}) of its rate"


if __name__ == "__main__":
    sys.exit(main())
