"""Section `objective`: what a step optimises: the loss, its advantages, its ratio, its checks.

What a loss's paper prescribes stands in `PRESCRIBED`; a setting left out takes it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Self

from pydantic import Field, model_validator

from engine.contract.section import Section
from engine.contract.served import SAMPLER_GAP_LIMIT

LossName = Literal["reinforce_kl", "grpo", "dr_grpo", "rloo", "dapo", "gspo", "cispo"]
Advantages = Literal["group_std", "group_mean", "leave_one_out"]
Aggregation = Literal["sequence_mean", "sequence_sum", "token_mean", "constant"]
ZeroSignal = Literal["keep", "filter", "refill"]


@dataclass(frozen=True)
class Prescription:
    """What the paper of a loss does where the config says nothing."""

    advantages: Advantages
    aggregation: Aggregation
    clip_low: float | None = None
    """The ratio's lower bound is 1 − clip_low; None is no bound."""
    clip_high: float | None = None
    """The ratio's upper bound is 1 + clip_high; None is no bound."""
    zero_signal: ZeroSignal = "keep"
    ratio: bool = True
    """Whether the loss corrects for weights that moved since the rollouts were scored."""
    overlong_share: float = 0.0
    """The overlong buffer as a share of `max_new_tokens`."""


PRESCRIBED: Mapping[LossName, Prescription] = MappingProxyType(
    {
        "reinforce_kl": Prescription(
            "group_std", "sequence_mean", zero_signal="filter", ratio=False
        ),
        "grpo": Prescription("group_std", "sequence_mean", 0.2, 0.2),
        "dr_grpo": Prescription("group_mean", "constant", 0.2, 0.2),
        "rloo": Prescription("leave_one_out", "sequence_sum", ratio=False),
        "dapo": Prescription(
            "group_std", "token_mean", 0.2, 0.28, zero_signal="refill", overlong_share=0.2
        ),
        "gspo": Prescription("group_std", "sequence_mean", 3e-4, 4e-4),
        "cispo": Prescription("group_std", "token_mean", None, 4.0),
    }
)


class ObjectiveConfig(Section):
    """What one step optimises. Left out, a setting takes what the loss's paper prescribes."""

    loss: LossName = "reinforce_kl"
    """The policy loss by name; docs/objectives.md has each with equation and paper."""
    advantages: Advantages | None = None
    """Baseline of a reward: the group's mean in units of its deviation (`group_std`), the mean
    alone (`group_mean`), or the mean of the other rollouts (`leave_one_out`)."""
    aggregation: Aggregation | None = None
    """How token losses become one number, always over the whole batch of an update: mean or sum
    within a rollout then mean over rollouts, mean over all tokens, or sum over all tokens by the
    constant rollouts × max_new_tokens."""
    clip_low: float | None = Field(None, gt=0, le=1)
    """The ratio's lower clip bound is 1 − clip_low."""
    clip_high: float | None = Field(None, gt=0, le=1000)
    """The ratio's upper clip bound is 1 + clip_high."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of KL(policy || step-0 policy) in the loss, weighted by `kl_coef`."""
    epochs: int = Field(1, ge=1, le=64)
    """Passes over a step's rollouts; more than one needs a loss with a ratio."""
    minibatches: int = Field(1, ge=1, le=1024)
    """Parts a step's prompts are split into, each with an optimizer update of its own."""
    truncated: Literal["train", "mask"] = "train"
    """`mask`: a completion cut off at max_new_tokens counts in its group's baseline and adds no
    loss itself."""
    overlong_buffer: int | None = Field(None, ge=0, le=131_072)
    """A completion that ends within so many tokens of max_new_tokens loses reward, linearly down
    to `overlong_penalty`; 0 is off. By default a fifth of max_new_tokens with dapo, else off."""
    overlong_penalty: float = Field(1.0, ge=0, le=100)
    """Reward lost by a completion that fills max_new_tokens."""
    zero_signal: ZeroSignal | None = None
    """What becomes of groups whose advantages are all zero. `keep`: they count in the denominators
    and have their KL term, as in GRPO's equation 3 (not in reinforce_kl); `filter`: they leave the
    batch, and so do groups whose rewards tie before the overlong penalty; `refill`: other prompts
    are drawn in their place."""
    refill_max: int = Field(3, ge=0, le=100)
    """With `zero_signal: refill`, how many more times a step may draw prompts; then it trains on
    what it has."""
    sampler_correction: Literal["none", "tis"] = "none"
    """`tis`: weigh each token by min(π_trainer / π_sampler, cap), for a sampler that is another
    engine than the trainer (truncated importance sampling)."""
    sampler_correction_cap: float = Field(2.0, gt=0, le=1000)
    """Largest weight of a token with `sampler_correction: tis`."""
    sampler_gap_warn: float = Field(0.05, gt=0)
    """Warn when the mean |log π_trainer − log π_sampler| over a step's tokens is larger."""
    sampler_gap_limit: float | None = Field(None, gt=0, le=1000)
    """End the run before the update when that mean is larger, over the step's rollouts, those of
    one server, of one question, or a single one (more is allowed where there are few tokens).

    By default 0.01 with `optim.precision: fp32` and 0.1 with bf16, by `temp` where that is under 1.
    """

    @property
    def prescribed(self) -> Prescription:
        """What the loss's paper does."""
        return PRESCRIBED[self.loss]

    @property
    def advantages_used(self) -> Advantages:
        """The setting, or the paper's."""
        return self.advantages or self.prescribed.advantages

    @property
    def aggregation_used(self) -> Aggregation:
        """The setting, or the paper's."""
        return self.aggregation or self.prescribed.aggregation

    @property
    def zero_signal_used(self) -> ZeroSignal:
        """The setting, or the paper's."""
        return self.zero_signal or self.prescribed.zero_signal

    def penalises(self, kl_coef: float) -> bool:
        """Whether a rollout that ranks nothing has a loss all the same: its KL term."""
        return kl_coef > 0 and self.loss != "reinforce_kl"

    def trains_on_ties(self, kl_coef: float) -> bool:
        """Whether a step in which every group ties has a loss."""
        return self.zero_signal_used == "keep" and self.penalises(kl_coef)

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """Lowest and highest ratio; 0 and infinity where there is no bound."""
        low = self.prescribed.clip_low if self.clip_low is None else self.clip_low
        high = self.prescribed.clip_high if self.clip_high is None else self.clip_high
        return (0.0 if low is None else 1 - low, float("inf") if high is None else 1 + high)

    def sampler_gap_limit_used(self, precision: str, temp: float) -> float:
        """The setting, or what rounding in this precision stays well under.

        What divides logits divides their rounding; greedy tokens are read at temperature 1.
        """
        if self.sampler_gap_limit is not None:
            return self.sampler_gap_limit
        return SAMPLER_GAP_LIMIT[precision] / min(1.0, temp or 1.0)

    @property
    def updates(self) -> int:
        """Optimizer updates of one step, at most."""
        return self.epochs * self.minibatches

    def overlong_tokens(self, max_new_tokens: int) -> int:
        """The overlong buffer in tokens; 0 is off."""
        if self.overlong_buffer is not None:
            return self.overlong_buffer
        return int(max_new_tokens * self.prescribed.overlong_share)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.prescribed.ratio:
            for name, value in (("epochs", self.epochs), ("minibatches", self.minibatches)):
                if value > 1:
                    raise ValueError(
                        f"{self.loss} has no ratio to correct {name}={value}: all updates after "
                        f"the first would be off-policy; set {name} to 1, or loss to grpo"
                    )
            if self.clip_low is not None or self.clip_high is not None:
                raise ValueError(
                    f"{self.loss} has no ratio to clip; remove clip_low and clip_high, "
                    "or set loss to grpo"
                )
        return self
