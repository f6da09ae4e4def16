"""What a warning may look at, and what it says. Knows series, not models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.warnings import WarningCode, WarningsConfig
from engine.evaluate.gate import Scored
from engine.rewards.text.forms import form_shares
from engine.rl.farthest import Farthest
from engine.rl.guards.examples import Judged, Order
from engine.rl.state import LoopState

SURE = 3.0
"""Standard errors beyond which two windows differ: they are compared at every gate."""
ONE_SIDED = 1.645
"""Standard errors to the bound that a rise stays under in 95 %."""
_LARGEST = 1e100
KEPT = 3
"""Windows of the last steps that are remembered."""

ENTROPY = "train/entropy"
TIES = "rollout/zero_variance"
TRUNCATED = "rollout/truncated"
LENGTH = "rollout/length_mean"
KL = "train/kl"
KL_MAX = "train/kl_max"
CLIPPED = "train/clip_fraction"
GRAD_NORM = "train/grad_norm"
PAID = "pool/reward_mean"
SPREAD = "pool/reward_std"
STRICT = "pool/strict_mean"
TIMEOUTS = "pool/timeout"
STEP_S = "time/step_s"
PARTS_S = {
    "sampling": "time/sampling_s",
    "verifying": "time/verifying_s",
    "training": "time/training_s",
}
_WATCHED = frozenset({
    *(ENTROPY, TIES, TRUNCATED, LENGTH, KL, KL_MAX, CLIPPED, GRAD_NORM),
    *(PAID, SPREAD, STRICT, TIMEOUTS, STEP_S, *PARTS_S.values()),
})  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One warning. `level` grows as it gets worse: it is said again at twice the level."""

    code: WarningCode
    level: float
    text: str
    """What is so, with its numbers, and after a semicolon what to do."""
    numbers: Mapping[str, float]
    order: Order
    """Which completions of the last step show it best."""
    scored: Sequence[Scored] = ()
    """Held-out rows that show it, where completions of a step would not."""


class Change(NamedTuple):
    """The first steps of a series against the last; medians beside means, for spikes."""

    first: float
    now: float
    first_median: float
    now_median: float
    error: float
    """Standard error of the difference of the means."""

    @property
    def rise(self) -> float:
        """Of the mean."""
        return self.now - self.first

    @property
    def sure(self) -> bool:
        """The means differ by more than chance."""
        return abs(self.rise) > SURE * self.error


@dataclass
class WatchMemory:
    """What the warnings have seen; JSON as it stands, so that a resumed run says the same."""

    counts: dict[str, int] = field(default_factory=dict)
    """Values of each series so far."""
    first: dict[str, list[float]] = field(default_factory=dict)
    recent: dict[str, list[float]] = field(default_factory=dict)
    gate_kl: dict[str, float] = field(default_factory=dict)
    """KL around each gate, by its step."""
    forms: dict[str, float] | None = None
    """Of the first gate, as `Seen.forms`."""
    spikes: int = 0
    """Of the gradient's norm."""
    said: dict[str, float] = field(default_factory=dict)
    """The level at which each code was last said."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> WatchMemory:
        """The inverse of `as_dict`, also of a state that knows only some of it."""
        return cls(**{name: value[name] for name in asdict(cls()) if name in value})

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    def take(self, values: Mapping[str, float], window: int, also: str) -> None:
        """One step; NaN and what no mean can be taken of is left out. `also`: a series more."""
        for name, value in values.items():
            if (name not in _WATCHED and name != also) or not abs(value) < _LARGEST:
                continue
            first = self.first.setdefault(name, [])
            if len(first) < window:
                first.append(value)
            recent = self.recent.setdefault(name, [])
            recent.append(value)
            del recent[: -KEPT * window]
            self.counts[name] = self.counts.get(name, 0) + 1


@dataclass(frozen=True)
class Seen:
    """All of it, after a gate."""

    config: RLRunConfig
    memory: WatchMemory
    state: LoopState
    items: Sequence[Scored] = ()
    """The rows of the gate, where they are known."""
    farthest: Farthest | None = None
    """Of the last step."""

    @property
    def limits(self) -> WarningsConfig:
        """The thresholds."""
        return self.config.warnings

    def forms(self) -> dict[str, float]:
        """The share of the gate's completions in each form of an answer (`format/NAME`)."""
        texts = [item.rollout.text for item in self.items]
        shares = form_shares(texts, [None] * len(texts))
        return {name: share for name, share in shares.items() if name.count("/") == 1}

    @property
    def left(self) -> int:
        """Steps that are left of the run."""
        return max(0, self.config.max_steps - self.state.step)

    def last(self, name: str) -> Sequence[float]:
        """The last window of a series, shorter where there is less."""
        return self.memory.recent.get(name, [])[-self.limits.window :]

    def change(self, name: str) -> Change | None:
        """None while there are fewer than two windows."""
        window = self.limits.window
        if self.memory.counts.get(name, 0) < 2 * window:
            return None
        first, now = self.memory.first[name], self.last(name)
        error = math.sqrt((statistics.variance(first) + statistics.variance(now)) / window)
        return Change(
            statistics.fmean(first),
            statistics.fmean(now),
            statistics.median(first),
            statistics.median(now),
            error,
        )

    @property
    def pool(self) -> float | None:
        """The success rate of the last steps' rollouts."""
        steps = sorted(self.state.pool_scores)[-self.limits.window :]
        return statistics.fmean(self.state.pool_scores[s] for s in steps) if steps else None


Look = Callable[[Seen], Finding | None]


def earned_series(config: RLRunConfig) -> tuple[str, float]:
    """Which series is what correctness pays, and its weight: the first of several rewards."""
    name, weight = config.reward_parts[0]
    if not config.rewards:
        return STRICT, 1.0
    short = name.rpartition(":")[2]
    names = [part.rpartition(":")[2] for part, _ in config.reward_parts]
    return f"rewards/{short if names.count(short) == 1 else name}", weight


def longest(one: Judged) -> tuple[float, ...]:
    """The longest first."""
    return (-float(len(one.rollout.completion_ids)),)


def worst(one: Judged) -> tuple[float, ...]:
    """The least reward first, of those the longest."""
    return (one.verdict.reward, *longest(one))


def best_paid(one: Judged) -> tuple[float, ...]:
    """The highest reward first, of those the longest."""
    return (-one.verdict.reward, *longest(one))
