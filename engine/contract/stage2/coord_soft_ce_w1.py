"""Section `custom.coord_soft_ce_w1`: how `rollout_matching_sft` teaches coord tokens.

At each supervised coord slot the distribution over the 1000 bins is drawn towards a Gaussian around
the bin that should stand there, and the whole distribution towards coord tokens.
"""

from __future__ import annotations

from pydantic import Field

from engine.contract.section import StrictSection


class CoordSoftCEW1Config(StrictSection):
    """The coord loss of `rollout_matching_sft`; `stage2_ab_training` has its own and reads none."""

    soft_ce_weight: float = Field(1.0, ge=0)
    """Cross-entropy with the Gaussian."""
    w1_weight: float = Field(1.0, ge=0)
    """Wasserstein-1 distance to the Gaussian, in shares of the 1000 bins."""
    gate_weight: float = Field(1.0, ge=0)
    """−log of the mass on coord tokens over the full vocabulary."""
    temperature: float = Field(1.0, gt=0)
    """Shapes both distributions."""
    target_sigma: float = Field(2.0, gt=0)
    """Of the Gaussian, in bins."""
    target_truncate: int | None = Field(16, ge=0)
    """Bins further from the middle get nothing; null is no limit."""
