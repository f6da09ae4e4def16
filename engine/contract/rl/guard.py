"""Section `guard`: when a run is not worth its night, and when it stopped being worth it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from engine.contract.section import Section


class GuardConfig(Section):
    """The headroom check, the inversion guard and the collapse guard; see docs/honesty.md."""

    headroom_ceiling: float = Field(0.85, ge=0, le=1)
    """A baseline at or above this ends the run before training: NO_HEADROOM."""
    headroom_floor: float = Field(0.15, ge=0, le=1)
    """A baseline at or below this ends the run before training: NO_SIGNAL."""
    inversion_gates: int = Field(2, ge=1)
    """Gates in a row that must be worse than the best one, while the pool rises, for an alert."""
    inversion_pool_rise: float = Field(0.02, ge=0, le=1)
    """The least rise of the pool since the best gate that counts as one."""
    collapse: bool = True
    """Stop at a checkpoint, with a diagnosis, when the run has collapsed."""
    patience: int = Field(5, ge=1)
    """Steps in a row that must show a symptom. NaN and time need one step."""
    window: int = Field(20, ge=3)
    """Steps that a running median looks back over."""
    settle: int = Field(10, ge=2)
    """Steps at the beginning that only measure what is normal for this run."""
    reward_share: float = Field(0.1, ge=0, lt=1)
    """Collapsed: the reward fell under this share of the best it has been."""
    grad_norm_factor: float = Field(50.0, gt=1)
    """Collapsed: the gradient's norm is above so many times its running median."""
    kl_factor: float = Field(20.0, gt=1)
    """Collapsed: the KL estimate is above `kl_least` and so many times its running median."""
    kl_least: float = Field(1.0, ge=0)
    """Nats a token under which no KL is called a spike."""
    entropy_floor: float = Field(1e-3, ge=0)
    """Collapsed: entropy (nats a token) under this, and the reward no better than at first."""
    length_factor: float = Field(8.0, gt=1)
    """Collapsed: completions so many times longer or shorter than at first, reward no better."""
    repeated_share: float = Field(0.5, gt=0, le=1)
    """Collapsed: this share of the completions repeats itself, reward no better than at first."""
    duplicate_share: float = Field(0.95, gt=0, le=1)
    """Collapsed: this share of a group's completions are copies, reward no better than at first."""
    step_time_factor: float = Field(20.0, gt=1)
    """Collapsed: a step takes so many times this run's median, and longer than `step_time_s`."""
    step_time_s: float = Field(300.0, gt=0)
    """Seconds under which no step is called stuck."""
    tied_steps: int = Field(20, ge=1)
    """Steps in a row in which every group ties before the run ends: NO_SIGNAL."""
    rollbacks: int = Field(0, ge=0, le=8)
    """How often a collapse goes back to the best gate's checkpoint with half the learning rate
    instead of ending the run."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.headroom_floor >= self.headroom_ceiling:
            raise ValueError(
                "headroom_floor must lie under headroom_ceiling; "
                "to train whatever the baseline is, set force_headroom"
            )
        return self
