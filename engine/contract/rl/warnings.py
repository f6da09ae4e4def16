"""Section `warnings`: what a run says at its gates while it trains on, and from which size on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.contract.section import Section

WarningCode = Literal[
    "ENTROPY_LOW",
    "TIES_HIGH",
    "TRUNCATED",
    "KL_CREEP",
    "KL_TOKEN",
    "LENGTH_PAID",
    "FORM_PAID",
    "CLIPPED",
    "GRAD_SPIKES",
    "SLOWER",
    "PLATEAU",
    "PEAKED",
]


class WarningsConfig(Section):
    """Warnings stop nothing; docs/warnings.md says what to do about each."""

    enabled: bool = True
    """Say warnings at all."""
    off: list[WarningCode] = Field([])
    """Those that are not said, by their codes."""
    window: int = Field(10, ge=5, le=1000)
    """Steps that are compared: the first so many against the last so many. Nothing is said before
    there are twice as many."""
    entropy_share: float = Field(0.5, gt=0, lt=1)
    """ENTROPY_LOW: entropy is under this share of the first steps' and, at the pace of the last
    steps, under `entropy_left` before the run ends; or is there already."""
    entropy_left: float = Field(0.1, gt=0, lt=1)
    """The share of the first steps' entropy at which nothing is left to explore with."""
    ties_high: float = Field(0.7, gt=0, le=1)
    """TIES_HIGH: this share of the groups tie."""
    ties_rise: float = Field(0.3, gt=0, le=1)
    """TIES_HIGH: the share of groups that tie rose by this since the first steps."""
    truncated_high: float = Field(0.1, gt=0, le=1)
    """TRUNCATED: this share of the completions is cut off."""
    truncated_rise: float = Field(0.01, gt=0, le=1)
    """TRUNCATED: the share of completions that are cut off rose by this, beyond chance."""
    kl_high: float = Field(0.5, gt=0)
    """KL_CREEP: KL to the step-0 policy, nats a token, at or above this."""
    kl_creep: float = Field(0.1, gt=0)
    """KL_CREEP: KL at or above this, and twice what it was at the best gate, with four gates or
    more since then."""
    kl_token: float = Field(1.0, gt=0)
    """KL_TOKEN: one token's KL at or above this: in step 1, where the policy is still the step-0
    policy, or with twice the log-ratio of the largest before, once a window of steps is known."""
    length_growth: float = Field(0.4, gt=0)
    """LENGTH_PAID: completions longer by this share, the reward up, and held-out rows hardly."""
    length_rise: float = Field(0.3, gt=0)
    """LENGTH_PAID: the least rise of the reward that is looked at, in units of its spread over the
    rollouts of a step."""
    form_rise: float = Field(0.1, gt=0)
    """FORM_PAID: the same."""
    earned_share: float = Field(0.25, gt=0, lt=1)
    """LENGTH_PAID: held-out rows rose by less than this share of what the reward rose, each in
    units of its own spread. FORM_PAID: so little of the reward's rise is correctness."""
    form_steps: int = Field(80, ge=1)
    """FORM_PAID: steps before which form may be what is learnt first."""
    clip_fraction: float = Field(0.2, gt=0, le=1)
    """CLIPPED: this share of the tokens has its gradient taken away by the clip bound."""
    grad_spike: float = Field(20.0, gt=1)
    """GRAD_SPIKES: a gradient norm so many times the median of the steps before is a spike; the
    collapse guard's rule is another, of steps in a row."""
    grad_spikes: int = Field(3, ge=1)
    """GRAD_SPIKES: so many of them in the run."""
    slower: float = Field(1.5, gt=1)
    """SLOWER: a step takes so many times what the first steps took."""
    slower_cost_s: float = Field(600.0, ge=0)
    """SLOWER: and the steps that are left take so many seconds more than at first."""
    plateau_steps: int = Field(60, ge=10)
    """PLATEAU: the fewest steps that can bring nothing; a third of the steps so far where that is
    more, and two and a half times as many where the run never gained anything."""
    plateau_gain: float = Field(0.06, gt=0, lt=1)
    """PLATEAU: a rise of pool or held-out that would be worth going on for."""
    peaked_fall: float = Field(0.03, ge=0, lt=1)
    """PEAKED: the least fall of held-out from its best gate, beside the test for chance."""
