"""`make bench-honesty`: how often a verdict is wrong, and what a night can show.

Simulates the outcomes of runs and sends them through the real code: split, selection, test,
verdict. Six questions: how often "gain" is said of runs that gained nothing; how often a pool
that was gamed is called what it is; at which sizes of a run that can be seen at all
(`bench/honesty_pools.py`); the power at +2, +3 and +5 points; how often a night of several runs
that gained nothing is announced as one with a gain; and how often the inversion alarm sounds in a
run whose held-out does not fall.
Exit code 1 when a bound does not hold. Knows no model: it draws which rows are solved.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from bench.honesty_pools import PoolShape, rose, simulate_pool
from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.data.split import Split, carve
from engine.rl.report import report_fields
from engine.rl.state import LoopState
from engine.verdict.inversion import find_inversion
from engine.verdict.trend import Tally, written
from worker.report.gains import standing
from worker.report.runs import GAIN

GATES = 12
MOST_FALSE_GAINS = 0.05
LEAST_HACKS_SEEN = 0.95
ENOUGH = 1000
"""Held-out rows from which on a hack of 10 points is told from one that held-out followed."""
CONFIG = RLRunConfig(base="embedded:qwen3-tiny")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How a policy moves. Points are hundredths of the share of rows it solves."""

    lift: float
    """True gain of the checkpoints, reached half-way through the run; a share of one."""
    pool_rise: float
    """How much the training rollouts' success rises; a share of one."""
    drift: float = 3.0
    """How far a row's own difficulty wanders by the end, in logits. 3 lets about a fifth of the
    rows change between step 0 and a checkpoint, as the demo's do."""


@dataclass(frozen=True)
class Case:
    """A question put to the rule."""

    name: str
    world: World
    heldout: int
    """Rows held out, `select` and `report` together."""
    pool: PoolShape = field(default_factory=lambda: PoolShape(60, 16, 4))


class Run(NamedTuple):
    """What one said."""

    verdict: str
    p: float
    """Of its test for a gain."""
    pool_rose: bool
    """By the test that stands apart."""


class Night(NamedTuple):
    """Nights in which no run gained anything."""

    nights: int
    said: float
    """Share of them in which a run says gain."""
    announced: float
    """Share whose first sentence does."""


def simulate(case: Case, runs: int, seed: int) -> list[Run]:
    """So many runs."""
    split = _split(case.heldout)
    shifts = _shifts(case.world)
    draws = (np.random.default_rng([seed, run]) for run in range(runs))
    return [_one_run(case, split, shifts, draw) for draw in draws]


def verdicts_of(runs: Sequence[Run]) -> Counter[str]:
    """How often each was said."""
    return Counter(run.verdict for run in runs)


def nights_with_a_gain(runs: Sequence[Run], a_night: int) -> Night:
    """The runs in nights of so many: what their reports say of gains."""
    nights = [runs[at : at + a_night] for at in range(0, len(runs) - a_night + 1, a_night)]
    said = sum(any(run.verdict == GAIN for run in night) for night in nights)
    announced = sum(bool(standing(night)) for night in nights)
    return Night(len(nights), said / len(nights), announced / len(nights))


def alarms(case: Case, runs: int, seed: int) -> float:
    """The share of runs in which the inversion alarm sounds at one gate or more."""
    split = _split(case.heldout)
    shifts = _shifts(case.world)
    draws = (np.random.default_rng([seed, run]) for run in range(runs))
    return sum(_alarmed(_simulated(case, split, shifts, draw).state) for draw in draws) / runs


def _alarmed(state: LoopState) -> bool:
    """As the loop asks it: after every gate, of what is known by then."""
    outcomes = state.outcomes()
    for gate in outcomes:
        known = {step: solved for step, solved in outcomes.items() if step <= gate}
        scores = {step: score for step, score in state.pool_scores.items() if step <= gate}
        groups = {step: tallies for step, tallies in state.pool_groups.items() if step <= gate}
        if find_inversion(known, scores, CONFIG.guard, groups) is not None:
            return True
    return False


class _Simulated(NamedTuple):
    """What a run measured."""

    state: LoopState
    solved: npt.NDArray[np.bool_]
    groups: Mapping[int, Sequence[Tally]]


def _simulated(case: Case, split: Split, shifts: Floats, draw: np.random.Generator) -> _Simulated:
    solved = _solved(case, shifts, draw)
    n = len(split.select)
    steps = case.pool.steps
    groups = simulate_pool(case.pool, case.world.pool_rise, draw)
    state = LoopState(step=steps, seconds=1.0)
    for step, tallies in groups.items():
        state.pool_groups[step] = written(tallies)
        state.pool_scores[step] = sum(t.solved for t in tallies) / sum(t.judged for t in tallies)
    for gate, outcomes in enumerate(solved):
        step = gate * steps // GATES
        state.heldout_scores[step] = float(outcomes[:n].mean())
        state.heldout_solved[step] = "".join("1" if one else "0" for one in outcomes[:n])
    return _Simulated(state, solved, groups)


def _one_run(case: Case, split: Split, shifts: Floats, draw: np.random.Generator) -> Run:
    """One run from rows to verdict; only who solves what is drawn."""
    state, solved, groups = _simulated(case, split, shifts, draw)
    n, steps = len(split.select), case.pool.steps
    picked = state.selected_step or 0
    gate_of = {gate * steps // GATES: gate for gate in range(GATES + 1)}
    reported = {step: solved[gate_of[step], n:].tolist() for step in {0, picked}}
    found = report_fields(state, reported, CONFIG)
    return Run(found["verdict"], found["p_better"], rose(groups))


def _solved(case: Case, shifts: Floats, draw: np.random.Generator) -> npt.NDArray[np.bool_]:
    """(1 + gates, rows): who solves what. Gates draw with the same random numbers."""
    logits = _logits(draw.beta(*_DIFFICULTY, size=case.heldout))
    walk = draw.normal(size=(GATES, case.heldout)).cumsum(0) * (case.world.drift / GATES**0.5)
    moved = np.vstack([logits, logits + walk + shifts[:, None]])
    return draw.random(case.heldout) < _share(moved)


_DIFFICULTY = (0.6, 0.5)
"""Beta distribution of the rows' success rates: most are nearly always or nearly never solved."""


@cache
def _shifts(world: World) -> Floats:
    """By gate: what must be added to every row's logit for the true mean lift to be as wanted."""
    draw = np.random.default_rng(0)
    logits = _logits(draw.beta(*_DIFFICULTY, size=200_000))
    noise = draw.normal(size=len(logits))
    base = _share(logits).mean()
    found = []
    for gate in range(1, GATES + 1):
        spread = world.drift * (gate / GATES) ** 0.5
        wanted = base + world.lift * min(1.0, 2 * gate / GATES)

        def miss(shift: float, spread: float = spread, wanted: float = wanted) -> float:
            return float(_share(logits + spread * noise + shift).mean() - wanted)

        found.append(brentq(miss, -10, 10, xtol=1e-5))
    return np.asarray(found)


def _logits(shares: Floats) -> Floats:
    clipped = shares.clip(1e-6, 1 - 1e-6)
    logits: Floats = np.log(clipped / (1 - clipped))
    return logits


def _share(logits: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-logits))
    return shares


def _split(heldout: int) -> Split:
    """The real split of five times as many rows."""
    rows = [Question(f"q{i}", f"{i}=", "7") for i in range(5 * heldout)]
    return carve(rows, heldout_frac=0.2, select_frac=CONFIG.select_frac, seed=0)


def _sized(pool: PoolShape, rise: float, heldout: int) -> str:
    asks = f"{pool.different} prompts" if pool.different else "fresh prompts"
    alike = "" if pool.alike == PoolShape().alike else f", alike {pool.alike:g}"
    return f"{pool.size}, {asks}{alike}, {pool.shape} {rise * 100:+.0f}, n = {heldout}"


NO_GAIN = [Case(f"no gain, n = {n}", World(0.0, 0.0), n) for n in (200, 500, 1000)]
NO_GAIN += [Case("no gain, rows that hardly move, n = 500", World(0.0, 0.0, drift=1.0), 500)]
HACKS = [
    Case(f"pool +20, held-out {lift * 100:+.0f}, n = {n}", World(lift, 0.20), n)
    for lift in (0.0, -0.05)
    for n in (200, 500, 1000)
]
POWER = [
    Case(f"held-out {lift * 100:+.0f}, n = {n}", World(lift, lift), n)
    for lift in (0.02, 0.03, 0.05)
    for n in (200, 500, 1000)
]


SIZES = [PoolShape(12, 64, 4), PoolShape(34, 8, 4), PoolShape(60, 16, 4), PoolShape(120, 32, 8)]
"""Steps, prompts a step, rollouts a prompt; the second is what a config has by default."""
OTHERS = [
    PoolShape(34, 8, 4, different=64),
    PoolShape(34, 8, 4, alike=0.15),
    PoolShape(12, 64, 4, different=400),
    PoolShape(34, 8, 4, shape="late jump"),
    PoolShape(60, 16, 4, shape="early rise"),
    PoolShape(12, 64, 4, shape="rise and fall"),
]
SIZED = [
    Case(_sized(pool, rise, n), World(0.0, rise), n, pool)
    for n, pools, rises in (
        (1000, SIZES, (0.0, 0.1, 0.2)),
        (200, SIZES[:3], (0.1, 0.2)),
        (1000, OTHERS, (0.0, 0.2)),
    )
    for rise in rises
    for pool in pools
]
"""Held-out +0 in all of them."""
SIZED_RUNS = 500

ALARMS = [
    Case(
        f"pool {rise * 100:+.0f}, held-out {lift * 100:+.0f}, n = {n}, {pool.size}",
        World(lift, rise),
        n,
        pool,
    )
    for n in (200, 1000)
    for lift, rise in ((0.0, 0.0), (0.0, 0.2), (0.05, 0.05), (-0.05, 0.2), (-0.1, 0.2))
    for pool in (SIZES[0], SIZES[1], SIZES[3])
]
"""Also such as really fall, to see what the alarm is worth."""
MOST_FALSE_ALARMS = 0.05

A_NIGHT = (2, 5, 10)
"""Runs of a night."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(argv)
    started = time.perf_counter()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {options.runs} runs each, best of {GATES}")
    print("| truth | gain | no gain proven | pool only | loss |")
    print("|---|---|---|---|---|", flush=True)
    found = {
        case.name: _row(case, options.runs, options.seed) for case in (*NO_GAIN, *HACKS, *POWER)
    }
    print("| rollouts, pool | its own gain is significant | of these pool only | loss | gain |")
    print("|---|---|---|---|---|", flush=True)
    sized = {case.name: _sized_row(case, options) for case in SIZED}
    print("| truth | the inversion alarm sounds |")
    print("|---|---|", flush=True)
    alarmed = {case.name: _alarm_row(case, options) for case in ALARMS}
    figures: dict[str, dict[str, float]] = {name: _shares(runs) for name, runs in found.items()}
    nights = {k: _night(k, [run for case in NO_GAIN for run in found[case.name]]) for k in A_NIGHT}
    figures |= {f"nights of {k}": night._asdict() for k, night in nights.items()}
    figures |= sized
    figures |= {f"alarm: {name}": {"alarm": share} for name, share in alarmed.items()}
    print(f"{time.perf_counter() - started:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    broken = [line for case in (*NO_GAIN, *HACKS) for line in broken_bounds(case, figures)]
    broken += [
        f"nights of {k}: {night.announced:.1%} announce a gain"
        for k, night in nights.items()
        if night.announced > MOST_FALSE_GAINS
    ]
    broken += [line for case in SIZED for line in broken_sizes(case, sized[case.name])]
    broken += [line for case in ALARMS for line in broken_alarms(case, alarmed[case.name])]
    print("\n".join(broken) or "bounds hold: false gains at most 5 %, hacks seen at least 95 %")
    return int(bool(broken))


def broken_bounds(case: Case, figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What a case was promised and did not keep."""
    shares = figures[case.name]
    found = []
    if shares.get("gain", 0.0) > MOST_FALSE_GAINS:
        found.append(f"{case.name}: {shares['gain']:.1%} are called a gain")
    seen = shares.get("pool only", 0.0) + shares.get("loss", 0.0)
    if case.world.pool_rise > 0 and seen < LEAST_HACKS_SEEN:
        found.append(f"{case.name}: only {seen:.1%} are seen")
    return found


def broken_sizes(case: Case, shares: Mapping[str, float]) -> list[str]:
    """What is promised where the pool's own gain is significant, and where there is none."""
    if not case.world.pool_rise and shares["accused"] > MOST_FALSE_GAINS:
        return [f"{case.name}: {shares['accused']:.1%} are called pool only"]
    seen = shares["pool only"] + shares["loss"]
    if case.world.pool_rise and case.heldout >= ENOUGH and seen < LEAST_HACKS_SEEN:
        return [f"{case.name}: only {seen:.1%} of what is significant is seen"]
    return []


def broken_alarms(case: Case, share: float) -> list[str]:
    """What is promised where held-out does not fall."""
    if case.world.lift >= 0 and share > MOST_FALSE_ALARMS:
        return [f"{case.name}: in {share:.1%} the inversion alarm sounds"]
    return []


def sizes_of(runs: Sequence[Run]) -> dict[str, float]:
    """How many pools rose by their own test, what those runs were called, how many of all were
    called pool only.
    """
    rose = [run for run in runs if run.pool_rose]
    told = verdicts_of(rose)
    found = {word: told[word] / max(1, len(rose)) for word in ("pool only", "loss", "gain")}
    accused = verdicts_of(runs)["pool only"] / len(runs)
    return {"significant": len(rose) / len(runs), **found, "accused": accused}


def _sized_row(case: Case, options: argparse.Namespace) -> dict[str, float]:
    found = sizes_of(simulate(case, min(options.runs, SIZED_RUNS), options.seed))
    cells = [f"{found[name]:.1%}" for name in ("significant", "pool only", "loss", "gain")]
    if not case.world.pool_rise:
        cells[1:] = [f"of all {found['accused']:.1%}", "", ""]
    print(f"| {case.name} | {' | '.join(cells)} |", flush=True)
    return found


def _alarm_row(case: Case, options: argparse.Namespace) -> float:
    share = alarms(case, min(options.runs, SIZED_RUNS), options.seed)
    print(f"| {case.name} | {share:.1%} |", flush=True)
    return share


def _row(case: Case, runs: int, seed: int) -> list[Run]:
    found = simulate(case, runs, seed)
    shares = _shares(found)
    words = ("gain", "no gain proven", "pool only", "loss")
    cells = " | ".join(f"{shares.get(word, 0):.1%}" for word in words)
    print(f"| {case.name} | {cells} |", flush=True)
    return found


def _shares(runs: Sequence[Run]) -> dict[str, float]:
    return {verdict: count / len(runs) for verdict, count in verdicts_of(runs).items()}


def _night(a_night: int, runs: Sequence[Run]) -> Night:
    found = nights_with_a_gain(runs, a_night)
    print(
        f"{found.nights} nights of {a_night} runs that gained nothing: in {found.said:.1%} a run "
        f"says gain, {found.announced:.1%} announce one",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
