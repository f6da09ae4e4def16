"""Coord loss of `rollout_matching_sft`: distributions over bins instead of decoded coordinates.

The slot at position p is predicted from the logits at p - 1. Its target is a Gaussian around the
bin that should stand there, cut off and tempered like the prediction. Nothing is decoded, so no box
has a loss of its own. Knows no model.

Shapes: T positions, V vocabulary, S slots, K = 1000 bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.contract.stage2.coord_soft_ce_w1 import CoordSoftCEW1Config


@dataclass(frozen=True, slots=True)
class CoordLoss:
    """Sums over slots; scalars of one graph."""

    soft_ce: Tensor
    w1: Tensor
    gate: Tensor
    slots: int
    not_finite: int
    """Slots whose logits held NaN or an infinity; they count 0 in the sums."""

    def total(self, config: CoordSoftCEW1Config) -> Tensor:
        """Weighted as the config says."""
        return (
            config.soft_ce_weight * self.soft_ce
            + config.w1_weight * self.w1
            + config.gate_weight * self.gate
        )


def coord_loss(
    logits_TV: Tensor,
    positions_S: Tensor,
    bins_S: Tensor,
    coord_ids_K: Tensor,
    config: CoordSoftCEW1Config,
) -> CoordLoss:
    """Of the slots at `positions_S`, which should say `bins_S`. In float32 at least. No slot: 0.

    Raises ValueError for a slot at position 0, which nothing predicts.
    """
    if positions_S.numel() and int(positions_S.min()) < 1:
        raise ValueError("a coord slot at position 0 has no logits before it; add the prompt")
    logits_SV = _at_least_float32(logits_TV[positions_S - 1])
    finite_S = logits_SV.isfinite().all(-1)
    kept_SV, bins_S = logits_SV[finite_S], bins_S[finite_S]
    log_p_SK = (kept_SV[:, coord_ids_K] / config.temperature).log_softmax(-1)
    q_SK = gaussian(bins_S, len(coord_ids_K), config).to(log_p_SK)
    cdf_gap_SK = (log_p_SK.exp() - q_SK).cumsum(-1)
    missing_S = kept_SV.logsumexp(-1) - kept_SV[:, coord_ids_K].logsumexp(-1)
    return CoordLoss(
        soft_ce=-(q_SK * log_p_SK).sum(),
        w1=cdf_gap_SK.abs().sum() / len(coord_ids_K),
        gate=missing_S.sum(),
        slots=len(positions_S),
        not_finite=int((~finite_S).sum()),
    )


def gaussian(bins_S: Tensor, count: int, config: CoordSoftCEW1Config) -> Tensor:
    """[S, K]: what each slot should say, in float64.

    >>> q = gaussian(torch.tensor([0]), 1000, CoordSoftCEW1Config(target_truncate=1))
    >>> [round(v, 4) for v in q[0, :3].tolist()]
    [0.5312, 0.4688, 0.0]
    """
    away_SK = torch.arange(count, device=bins_S.device) - bins_S[:, None]
    score_SK = -away_SK.double().square() / (2 * config.target_sigma**2)
    if config.target_truncate is not None:
        score_SK = score_SK.masked_fill(away_SK.abs() > config.target_truncate, -torch.inf)
    return (score_SK / config.temperature).softmax(-1)


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
