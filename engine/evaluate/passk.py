"""pass@k from n samples a row: the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374), with
an interval over rows. Torch-free; knows no sampler.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from engine.contract.intervals import evidence, wilson

_EACH = 16
"""Up to here every k; beyond only powers of two, and n."""


@lru_cache(maxsize=100_000)
def pass_at(k: int, n: int, solved: int) -> float:
    """The chance that k of n samples, drawn without putting back, hold a solved one.

    >>> [round(pass_at(k, n=4, solved=1), 3) for k in (1, 2, 4)]
    [0.25, 0.5, 1.0]
    """
    return 1.0 - math.comb(n - solved, k) / math.comb(n, k)


def counted_ks(n: int) -> list[int]:
    """
    >>> counted_ks(100)[-4:]
    [16, 32, 64, 100]
    """
    return [k for k in range(1, n + 1) if k <= _EACH or k & (k - 1) == 0 or k == n]


@dataclass(frozen=True)
class PassAt:
    """pass@k over rows, with its 95 % interval."""

    k: int
    value: float
    low: float
    high: float
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def pass_at_over(
    k: int, rows: Sequence[tuple[int, int]], questions: Sequence[Hashable]
) -> PassAt | None:
    """The mean over rows (n, solved) that have at least k samples; None where none has.

    Its interval is Wilson's at the number of tries that the spread of the rows amounts to: one a
    row where rows are solved wholly or never, up to n a row where all are solved as often. Rows
    that ask the same (`questions`) are one.
    """
    kept = [(pass_at(k, n, c), q) for (n, c), q in zip(rows, questions, strict=True) if n >= k]
    if not kept:
        return None
    values = [value for value, _ in kept]
    mean = min(1.0, statistics.fmean(values))
    count = evidence([question for _, question in kept])
    spread = statistics.pvariance(values)
    least = mean * (1 - mean) / max(n for n, _ in rows)
    worth = count * mean * (1 - mean) / max(spread, least) if least > 0 and count > 1 else count
    low, high = wilson(mean * worth, worth)
    return PassAt(k, mean, low, high, len(kept))
