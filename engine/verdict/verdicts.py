"""The words for what a run showed, by one rule.

| verdict | when |
|---|---|
| no verdict | fewer different `report` questions than `report_min`, or too many judged unsoundly |
| loss | the picked checkpoint solves fewer `report` rows: interval and exact test agree |
| gain | the test over all held-out rows, corrected for the picking, and a lift on `report` |
| pool only | no gain, and the pool rose (4 %), by more than held-out can have risen (10 %) |
| no gain proven | anything else |

Anything but a gain publishes the base. Calibrated by `make bench-honesty`; see docs/honesty.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from engine.contract.intervals import PairedComparison
from engine.verdict.trend import Rise

Verdict = Literal["gain", "no gain proven", "pool only", "loss", "no verdict"]

ALPHA = 0.04
"""Level of the test for a gain: tested at 4 %, so that "gain" is said in less than 5 % of the
runs that gained nothing, also where the rows' differences are skewed and the test a little off."""
POOL_ROSE = 0.05
"""A pool that rose by less than this is not worth a word."""


def best_step(scores: Mapping[int, float]) -> int | None:
    """The step with the highest score, the earliest of equals; None without any.

    >>> best_step({0: 0.5, 10: 0.6, 20: 0.6})
    10
    """
    return min(scores, key=lambda step: (-scores[step], step)) if scores else None


def judge(
    report: PairedComparison,
    p_better: float,
    pool: Rise,
    report_min: int,
    heldout: PairedComparison | None = None,
    *,
    unsound: str | None = None,
) -> Verdict:
    """`report`: step 0 against the picked step on the `report` rows; `pool`: over the run;
    `heldout`: all held-out rows, those of `select` at the last gate.

    The last gate was not picked, so what `select` says there is not too good. `unsound`: why the
    gates behind them carry no verdict.
    """
    if unsound is not None or report.different < report_min:
        return "no verdict"
    if report.p_value < 0.05 and report.ci95[1] < 0:
        return "loss"
    if p_better <= ALPHA and report.lift > 0:
        return "gain"
    if pool.low > 0 and pool.by >= POOL_ROSE and pool.by > (heldout or report).most:
        return "pool only"
    return "no gain proven"


def published_step(verdict: Verdict, picked: int) -> int:
    """What is shipped: the picked checkpoint with a gain, else the base.

    >>> published_step("no gain proven", 40)
    0
    """
    return picked if verdict == "gain" else 0
