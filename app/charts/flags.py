"""Warnings on charts: a numbered flag at the step at which one was raised, in the first chart and
in those of what it is about. The sentence beside them has the same number. Knows no pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from app.charts.panels import HELDOUT, POOL, Chart
from worker.read.alerts import Alert

_ABOUT: Mapping[str, AbstractSet[str]] = {
    "ENTROPY_LOW": {"train/entropy"},
    "TIES_HIGH": {"rollout/zero_variance"},
    "TRUNCATED": {"rollout/truncated"},
    "KL_CREEP": {"train/kl"},
    "KL_TOKEN": {"train/kl"},
    "LENGTH_PAID": {"rollout/length_mean", "rollout/length_mean/right"},
    "FORM_PAID": {"pool/reward_mean"},
    "CLIPPED": {"train/clip_fraction"},
    "GRAD_SPIKES": {"train/grad_norm"},
    "SLOWER": {"time/training_s"},
}
"""By the code of a warning (docs/warnings.md), the series that it is about; of the others the first
chart alone.
"""


class Flag(NamedTuple):
    """One on a chart."""

    step: int
    number: int


def flags(alerts: Sequence[Alert], chart: Chart) -> list[Flag]:
    """Those of a chart; what belongs to no step has a number and no flag."""
    first = {HELDOUT, POOL} <= set(chart.series)
    return [
        Flag(alert.step, number)
        for number, alert in enumerate(alerts, 1)
        if alert.step is not None
        and (first or set(_ABOUT.get(alert.code, ())).intersection(chart.series))
    ]
