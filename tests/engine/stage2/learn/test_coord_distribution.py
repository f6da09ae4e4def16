"""The coord loss of rollout matching: by hand in fp64, and its gradients."""

from __future__ import annotations

import math

import pytest
import torch

from engine.contract.stage2.coord_soft_ce_w1 import CoordSoftCEW1Config
from engine.stage2.learn.coord_distribution import coord_loss, gaussian

CONFIG = CoordSoftCEW1Config()
COORDS = torch.arange(10, 1010)
"""Ids of the coord tokens in a vocabulary of 1020."""


def logits_of(*peaks: tuple[int, float], rows: int = 3) -> torch.Tensor:
    """Zero everywhere, in fp64, but for the row before the slot at 2."""
    logits = torch.zeros(rows, 1020, dtype=torch.float64)
    for token, value in peaks:
        logits[1, token] = value
    return logits.requires_grad_()


def loss_at(logits: torch.Tensor, bin_: int, config: CoordSoftCEW1Config = CONFIG):  # type: ignore[no-untyped-def]
    return coord_loss(logits, torch.tensor([2]), torch.tensor([bin_]), COORDS, config)


@pytest.mark.requirement("RM-01")
def test_a_flat_prediction_has_the_loss_that_a_hand_computes() -> None:
    """Over 1000 equal bins: ln 1000; W1 the mean distance of uniform and Gaussian; the gate
    ln(1020 / 1000).
    """
    found = loss_at(logits_of(), 500)

    q = gaussian(torch.tensor([500]), 1000, CONFIG)[0].tolist()
    w1, gap = 0.0, 0.0
    for share in q:
        gap += 1 / 1000 - share
        w1 += abs(gap) / 1000
    assert found.soft_ce.item() == pytest.approx(math.log(1000), abs=1e-12)
    assert found.w1.item() == pytest.approx(w1, abs=1e-12)
    assert found.gate.item() == pytest.approx(math.log(1.02), abs=1e-12)
    assert found.total(CONFIG).item() == pytest.approx(math.log(1000) + w1 + math.log(1.02))


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize(("truncate", "reached"), [(16, 33), (0, 1), (None, 1000)])
def test_the_target_ends_behind_its_last_bin(truncate: int | None, reached: int) -> None:
    """The bin that lies exactly so far away is inside; without a limit all are."""
    config = CoordSoftCEW1Config(target_truncate=truncate, target_sigma=50.0)

    [q] = gaussian(torch.tensor([500]), 1000, config)

    assert int((q > 0).sum()) == reached
    assert q.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert q[500 - 8 : 500 + 9].tolist() == q[500 - 8 : 500 + 9].flip(0).tolist()


@pytest.mark.requirement("RM-01")
def test_temperature_shapes_prediction_and_target() -> None:
    """At temperature 2 both are what logits and squares of half the size give at 1."""
    half = logits_of((510, 3.0))
    whole = logits_of((510, 6.0))
    warm = CoordSoftCEW1Config(temperature=2.0)
    wide = CoordSoftCEW1Config(target_sigma=2.0 * math.sqrt(2))

    assert loss_at(whole, 500, warm).soft_ce.item() == pytest.approx(
        loss_at(half, 500, wide).soft_ce.item(), abs=1e-12
    )


@pytest.mark.requirement("RM-01")
def test_gradients_are_those_of_the_formula() -> None:
    """In fp64, by finite differences; and soft CE alone pulls towards the target by p - q."""
    small = torch.randn(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    coords = torch.arange(5, 35)

    def total(logits: torch.Tensor) -> torch.Tensor:
        slots, bins = torch.tensor([1, 2]), torch.tensor([4, 20])
        return coord_loss(logits, slots, bins, coords, CONFIG).total(CONFIG)

    assert torch.autograd.gradcheck(total, (small.requires_grad_(),))
    logits = logits_of((300, 2.0))
    loss_at(logits, 500).soft_ce.backward()
    p = logits.detach()[1, COORDS].softmax(-1)
    q = gaussian(torch.tensor([500]), 1000, CONFIG)[0]
    assert logits.grad is not None
    assert torch.allclose(logits.grad[1, COORDS], p - q, atol=1e-12)
    assert not logits.grad[[0, 2]].any()


@pytest.mark.requirement("RM-01")
def test_what_is_not_finite_counts_nothing_and_is_told() -> None:
    broken = logits_of().detach().clone()
    broken[1, 20] = torch.nan

    found = loss_at(broken, 500)

    assert (found.total(CONFIG).item(), found.slots, found.not_finite) == (0.0, 1, 1)


def test_a_slot_that_nothing_predicts_is_refused() -> None:
    with pytest.raises(ValueError, match="position 0 has no logits before it"):
        coord_loss(logits_of(), torch.tensor([0]), torch.tensor([5]), COORDS, CONFIG)
