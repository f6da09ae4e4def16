"""Is the checkpoint that was picked as the best of n really better than step 0?

A sign-flip permutation test that repeats the picking: on the `select` rows the statistic is the
best of all gates, under the null too, so having looked at n gates costs what it should; on the
`report` rows, which picked nothing, it is the picked checkpoint alone. Both halves are added up,
so that no row's evidence is lost. Knows no model and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Outcomes = Sequence[bool | None]
"""Success of each row, in one fixed order; None where it was not judged."""

Ints = npt.NDArray[np.int64]

FLIPS = 10_000
_CHUNK = 1_000
"""Sign vectors drawn at once; bounds the memory at large n."""


@dataclass(frozen=True)
class Heldout:
    """Per-row outcomes of a run. Each mapping goes from a step to its outcomes; 0 is the base."""

    select: Mapping[int, Outcomes]
    """Of every gate that the pick was made from."""
    report: Mapping[int, Outcomes]
    """Of step 0 and of the picked step."""


def p_better(heldout: Heldout, picked: int, *, seed: int, flips: int = FLIPS) -> float:
    """One-sided p-value of "the picked checkpoint solves more rows than step 0".

    Null: step 0 and every gated checkpoint are alike, so each row's differences may change their
    sign together (Westfall and Young 1993, max-T by permutation; Nichols and Holmes 2002). The
    smallest possible value is 1 / (flips + 1). 1.0 when step 0 itself was picked.
    """
    if picked == 0:
        return 1.0
    gated = [step for step in heldout.select if step != 0]
    select = _differences(heldout.select, gated)
    report = _differences(heldout.report, [picked])
    gained = int(_differences(heldout.select, [picked]).sum() + report.sum())
    select = select[select.any(axis=1)]  # a row that no gate changed flips into itself
    changed = int(np.count_nonzero(report))
    draw = np.random.default_rng(seed)
    as_good = 0
    for start in range(0, flips, _CHUNK):
        size = min(_CHUNK, flips - start)
        best = _flipped(draw, size, select).max(axis=1, initial=0)
        # One column of signs adds up to a fair coin's balance.
        balance = 2 * draw.binomial(changed, 0.5, size) - changed
        # Where no checkpoint beats step 0 on `select`, step 0 is picked and gains nothing.
        null = np.where(best > 0, best + balance, 0)
        as_good += int((null >= gained).sum())
    return (as_good + 1) / (flips + 1)


def _differences(outcomes: Mapping[int, Outcomes], steps: Sequence[int]) -> Ints:
    """(rows, steps) of −1, 0 and 1: what each step solves that step 0 does not, and less.

    A row that one of the two did not judge differs in nothing.
    """
    base = _numbers(outcomes[0])
    found = np.stack([_numbers(outcomes[step]) - base for step in steps], axis=1)
    return np.nan_to_num(found).astype(np.int64)


def _numbers(outcomes: Outcomes) -> npt.NDArray[np.float64]:
    return np.asarray([np.nan if one is None else one for one in outcomes], dtype=np.float64)


def _flipped(draw: np.random.Generator, size: int, differences: Ints) -> Ints:
    """(size, steps): sums over rows whose signs were drawn anew.

    Signs are bits, eight rows a byte: the rows kept less the rows flipped, among those gained and
    among those lost, are counted and not multiplied.
    """
    gained = np.packbits(differences > 0, axis=0)
    lost = np.packbits(differences < 0, axis=0)
    kept = draw.integers(0, 256, (size, len(gained)), dtype=np.uint8)
    columns = [
        2 * (_count(kept & gained[:, step]) - _count(kept & lost[:, step]))
        for step in range(differences.shape[1])
    ]
    sums: Ints = np.stack(columns, axis=1) - differences.sum(axis=0)
    return sums


def _count(bits: npt.NDArray[np.uint8]) -> Ints:
    """Bits set in each row."""
    counted: Ints = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counted
