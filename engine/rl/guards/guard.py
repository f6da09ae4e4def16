"""The collapse guard: has this run stopped being worth its night?

Every rule compares the run with itself: with a running median, with its first steps, or with the
best it has been. A rule that healthy learning meets too (low entropy, other lengths, equal
completions) counts only while the reward is no better than in the first steps, neither what is
paid nor what the verifier alone gives. Torch-free; knows series, not models, and stops nothing
itself.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.contract.rl.guard import GuardConfig
from engine.rewards.adapter import Reason
from engine.rl.buffer import JudgedGroup
from engine.rl.guards.examples import Judged, Order, examples, judged_of
from engine.run.stop import Diagnosis
from engine.sampling.repetition import repeats_itself

Rule = Literal[
    "not a number",
    "reward vanished",
    "gradient spike",
    "KL spike",
    "entropy gone",
    "length drift",
    "repeated text",
    "duplicates",
    "stuck step",
    "all groups tie",
]

REWARD = "pool/strict_mean"
"""What the run's verifier alone gives: what is paid for form fades, and should."""
PAID = "pool/reward_mean"
GRAD_NORM = "train/grad_norm"
KL = "train/kl"
ENTROPY = "train/entropy"
LENGTH = "rollout/length_mean"
REPEATED = "rollout/repeated"
DUPLICATES = "rollout/duplicates"
UPDATES = "train/updates"
SKIPPED = "train/skipped"
_WATCHED = (REWARD, PAID, GRAD_NORM, KL, ENTROPY, LENGTH, REPEATED, DUPLICATES)
_MUST_BE_FINITE = ("train/loss", GRAD_NORM, KL)

_LEAST_REWARD = 0.02
"""A reward that was never above this cannot vanish."""
_SAMPLES = 4
_SHOWN = 600
"""Characters of a text in a sample."""


@dataclass
class GuardMemory:
    """What the guard has seen; JSON as it stands, so that a resumed run judges alike."""

    steps: int = 0
    first: dict[str, list[float]] = field(default_factory=dict)
    """The first `settle` values of each series: what is normal for this run."""
    recent: dict[str, list[float]] = field(default_factory=dict)
    """The last `window` values of each series."""
    seconds: list[float] = field(default_factory=list)
    """Of the last steps. Wall-clock time: the one thing here that no resume repeats."""
    streaks: dict[str, int] = field(default_factory=dict)
    """Steps in a row in which a rule was met."""
    best_reward: float = 0.0
    """The best mean reward over `patience` steps."""
    trained: bool = False
    """Whether any step had a group to rank."""


_REMEDIES: Mapping[Rule, str] = {
    "not a number": "lower lr, or raise optim.adam_eps",
    "reward vanished": "lower lr, or raise kl_coef",
    "gradient spike": "lower lr or grad_clip",
    "KL spike": "lower lr, raise kl_coef, or set optim.adam_eps to 1e-4",
    "entropy gone": "raise temp or kl_coef, or lower lr",
    "length drift": "raise kl_coef, or look at what the verifier pays",
    "repeated text": "raise kl_coef, or look at what the verifier pays",
    "duplicates": "raise temp or kl_coef",
    "stuck step": "look at the verifier and at what else ran on the machine",
    "all groups tie": "choose rows that are solved at times, a verifier that reads what the "
    "policy writes, a larger max_new_tokens where it is cut off, or a warm-up",
}


class CollapseGuard:
    """`sampled` and `stepped` follow the loop's steps in their order."""

    def __init__(self, config: GuardConfig, memory: GuardMemory) -> None:
        self.config = config
        self.memory = memory
        self._shown: Sequence[JudgedGroup] = ()

    def sampled(self, groups: Sequence[JudgedGroup]) -> None:
        """Remember this step's rollouts, in case they must be shown."""
        self._shown = groups

    def stepped(
        self, step: int, metrics: Mapping[str, float], *, ranked: bool, seconds: float
    ) -> Diagnosis | None:
        """What is wrong after a step; None while nothing is. Takes the step into its memory.

        `ranked`: whether any group of the step had unequal rewards to learn from.
        """
        self.memory.trained |= ranked
        found = self._judge(step, metrics, ranked=ranked)
        self._remember(metrics, seconds)
        return found

    def stuck_after(self) -> float | None:
        """Seconds after which the running step counts as stuck; None while too few are known."""
        if not self.config.collapse or len(self.memory.seconds) < self.config.settle:
            return None
        usual = statistics.median(self.memory.seconds)
        return max(self.config.step_time_s, self.config.step_time_factor * usual)

    def stuck(self, step: int, limit: float) -> Diagnosis:
        """The diagnosis of a step that ran into `stuck_after()`."""
        usual = statistics.median(self.memory.seconds)
        text = f"it is not done after {limit:.0f} s, and a step of this run takes {usual:.1f} s"
        return Diagnosis("stuck step", step, limit, usual, text, _REMEDIES["stuck step"])

    def _judge(self, step: int, metrics: Mapping[str, float], *, ranked: bool) -> Diagnosis | None:
        """The first rule that has been met for long enough."""
        if not self.config.collapse:
            return None
        found = [f for f in self._findings(metrics, ranked=ranked) if f.met]
        before = self.memory.streaks
        self.memory.streaks = {f.rule: before.get(f.rule, 0) + 1 for f in found}
        for finding in found:
            streak = self.memory.streaks[finding.rule]
            if streak >= finding.patience:
                text = finding.text + (f", {streak} steps in a row" if streak > 1 else "")
                remedy = _REMEDIES[finding.rule]
                judged = judged_of(self._shown)
                samples = examples(judged, _worst(finding.rule, judged), _SAMPLES, _SHOWN)
                value = finding.value if math.isfinite(finding.value) else None
                return Diagnosis(finding.rule, step, value, finding.limit, text, remedy, samples)
        return None

    def _findings(self, metrics: Mapping[str, float], *, ranked: bool) -> list[_Finding]:
        """Every rule held against one step."""
        return [
            *_not_finite(metrics),
            self._none_finite(metrics),
            self._ties(ranked=ranked),
            *(self._against_itself(metrics) if self.memory.steps >= self.config.settle else ()),
        ]

    def _ties(self, *, ranked: bool) -> _Finding:
        """Only a run that never ranked has no signal; one that solves everything is done."""
        text = "in every step so far all completions of a prompt earned the same"
        text += _unread(self._shown)
        met = not ranked and not self.memory.trained
        return _Finding("all groups tie", met, 0.0, None, text, self.config.tied_steps)

    def _none_finite(self, metrics: Mapping[str, float]) -> _Finding:
        """With `optim.nonfinite: skip` a run can go on without learning anything."""
        skipped = metrics.get(SKIPPED, 0.0)
        met = skipped > 0 and not metrics.get(UPDATES)
        text = f"every update of the step ({skipped:.0f}) was left out as not finite"
        return self._finding("not a number", met, skipped, 0.0, text)

    def _against_itself(self, metrics: Mapping[str, float]) -> list[_Finding]:
        """The rules that need to know what is normal for this run."""
        config = self.config
        # Either may be what is learnt first: the answer, or a form that is still paid for. A step
        # in which nothing was judged has neither, and says nothing of them.
        no_better = all(
            series in metrics and metrics[series] <= _median(self.memory.first.get(series, []))
            for series in (REWARD, PAID)
        )
        found = [
            *([self._vanished(metrics[REWARD])] if REWARD in metrics else []),
            *self._spike("gradient spike", GRAD_NORM, metrics, config.grad_norm_factor, 0.0),
            *self._spike("KL spike", KL, metrics, config.kl_factor, config.kl_least),
        ]
        if no_better:
            found += [
                self._drift(metrics[LENGTH]),
                self._share("repeated text", metrics[REPEATED], config.repeated_share),
                self._share("duplicates", metrics[DUPLICATES], config.duplicate_share),
            ]
        if no_better and ENTROPY in metrics:
            value, limit = metrics[ENTROPY], config.entropy_floor
            text = f"{value:.2g} nats a token (limit {limit:.2g}), and the reward no better"
            found.append(self._finding("entropy gone", value < limit, value, limit, text))
        return found

    def _finding(self, rule: Rule, met: bool, value: float, limit: float, text: str) -> _Finding:
        return _Finding(rule, met, value, limit, text, self.config.patience)

    def _vanished(self, reward: float) -> _Finding:
        best = self.memory.best_reward
        limit = self.config.reward_share * best
        text = f"the verifier's mean reward is {reward:.3f}, and was {best:.3f}"
        met = reward < limit and best >= _LEAST_REWARD
        return self._finding("reward vanished", met, reward, limit, text)

    def _spike(
        self, rule: Rule, series: str, metrics: Mapping[str, float], factor: float, least: float
    ) -> list[_Finding]:
        seen = self.memory.recent.get(series, [])
        if series not in metrics or len(seen) < self.config.settle // 2:
            return []
        value, usual = metrics[series], _median(seen)
        limit = max(least, factor * usual)
        text = f"{series} is {value:.3g}, and its running median {usual:.3g}"
        return [self._finding(rule, usual > 0 and value > limit, value, limit, text)]

    def _drift(self, length: float) -> _Finding:
        usual = _median(self.memory.first[LENGTH])
        factor = max(length, 1.0) / max(usual, 1.0)
        met = max(factor, 1 / factor) > self.config.length_factor
        text = f"{length:.1f} tokens a completion, {usual:.1f} at first, and the reward no better"
        return self._finding("length drift", met, length, usual, text)

    def _share(self, rule: Rule, value: float, limit: float) -> _Finding:
        text = f"{value:.0%} of the completions (limit {limit:.0%}), and the reward no better"
        return self._finding(rule, value >= limit, value, limit, text)

    def _remember(self, metrics: Mapping[str, float], seconds: float) -> None:
        memory, config = self.memory, self.config
        memory.steps += 1
        for series in _WATCHED:
            value = metrics.get(series)
            if value is None or not math.isfinite(value):
                continue
            first = memory.first.setdefault(series, [])
            if len(first) < config.settle:
                first.append(value)
            recent = memory.recent.setdefault(series, [])
            recent.append(value)
            del recent[: -config.window]
        memory.seconds.append(round(seconds, 3))
        del memory.seconds[: -config.window]
        rewards = memory.recent.get(REWARD, [])[-config.patience :]
        if len(rewards) == config.patience:
            memory.best_reward = max(memory.best_reward, statistics.fmean(rewards))


@dataclass(frozen=True)
class _Finding:
    """One rule held against one step."""

    rule: Rule
    met: bool
    value: float
    limit: float | None
    text: str
    patience: int


def _not_finite(metrics: Mapping[str, float]) -> list[_Finding]:
    return [
        _Finding("not a number", True, metrics[series], None, f"{series} is {metrics[series]}", 1)
        for series in _MUST_BE_FINITE
        if series in metrics and not math.isfinite(metrics[series])
    ]


def _unread(groups: Sequence[JudgedGroup]) -> str:
    """How many completions of the last step earned nothing because they were not read."""
    verdicts = [(r, v) for group in groups for r, v, _ in group.rows()]
    lost = [r.text for r, v in verdicts if v.reason is Reason.UNPARSED]
    cut = sum(rollout.truncated for rollout, _ in verdicts)
    said = ""
    if lost and len(lost) >= len(verdicts) / 2:
        shown = " ".join(lost[0].split())[:120]
        said += f"; in {len(lost)} of {len(verdicts)} the verifier finds no answer, like {shown!r}"
    if cut and cut >= len(verdicts) / 2:
        said += f"; {cut} of {len(verdicts)} were cut off at their limit"
    return said


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _worst(rule: Rule, judged: Sequence[Judged]) -> Order:
    """Which completions show a rule best."""
    copies = Counter(one.rollout.text for one in judged)

    def order(one: Judged) -> tuple[float, ...]:
        length = len(one.rollout.completion_ids)
        match rule:
            case "repeated text":
                return (-float(repeats_itself(one.rollout.completion_ids)), -length)
            case "duplicates":
                return (-copies[one.rollout.text],)
            case "length drift":
                return (-length,)
            case _:
                return (one.verdict.reward, -length)

    return order
