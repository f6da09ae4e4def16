"""Advantages, K3 and the loss against tables made by hand."""

from __future__ import annotations

import math

import pytest
import torch

from engine.rl.advantages import group_advantages
from engine.rl.losses import k3, reinforce_kl


def test_equal_rewards_in_a_group_give_zero_advantages() -> None:
    """No ranking inside the group means no learning signal."""
    assert group_advantages([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]) == [[0.0] * 3, [0.0] * 3]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0], [1.0, -1.0]),
        ([1.0, 0.0, 0.0, 0.0], [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
        ([2.0, 4.0, 6.0], [-math.sqrt(1.5), 0.0, math.sqrt(1.5)]),
    ],
)
def test_advantages_are_in_units_of_the_groups_population_deviation(
    rewards: list[float], expected: list[float]
) -> None:
    """Divided by n, not by n − 1; each group for itself."""
    assert group_advantages([rewards])[0] == pytest.approx(expected, abs=1e-6)


def test_a_tied_group_beside_a_ranked_one_stays_at_zero() -> None:
    """Groups do not leak into each other."""
    tied, ranked = group_advantages([[0.3, 0.3], [0.0, 1.0]])

    assert tied == [0.0, 0.0]
    assert ranked == pytest.approx([-1.0, 1.0], abs=1e-6)


@pytest.mark.parametrize(
    ("logp", "ref", "expected"),
    [
        (-1.0, -1.0, 0.0),
        (-1.0, -2.0, math.exp(-1) + 1 - 1),  # Δ = 1
        (-2.0, -1.0, math.exp(1) - 1 - 1),  # Δ = −1
    ],
)
def test_k3_follows_its_formula(logp: float, ref: float, expected: float) -> None:
    """exp(−Δ) + Δ − 1 with Δ = log π − log π_ref: 0 where equal, else positive."""
    assert k3(torch.tensor(logp), torch.tensor(ref)).item() == pytest.approx(expected, abs=1e-6)


def test_the_loss_is_the_mean_over_the_rollouts_own_tokens() -> None:
    """A short rollout's token weighs more than a long one's, and padding weighs nothing."""
    logprobs_BT = torch.tensor([[-1.0, -3.0, -99.0], [-2.0, -99.0, -99.0]])
    mask_BT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])

    losses_B = reinforce_kl(
        logprobs_BT, logprobs_BT, torch.tensor([1.0, -0.5]), mask_BT, kl_coef=0.1
    )

    # row 0: −1·mean(−1, −3) = 2; row 1: 0.5·(−2) = −1; K3 is 0 everywhere
    assert losses_B.tolist() == pytest.approx([2.0, -1.0])


def test_the_kl_term_adds_its_weight_to_each_token() -> None:
    """mean(−A·log π + kl_coef·K3) with Δ = 1 at the one token."""
    logprobs_BT, reference_BT = torch.tensor([[-1.0]]), torch.tensor([[-2.0]])

    loss_B = reinforce_kl(
        logprobs_BT, reference_BT, torch.tensor([2.0]), torch.ones(1, 1), kl_coef=0.1
    )

    assert loss_B.item() == pytest.approx(2.0 + 0.1 * math.exp(-1), abs=1e-6)


def test_the_gradient_raises_what_was_better_and_pulls_back_to_the_reference() -> None:
    """d/dlogπ = −A + kl_coef·(1 − exp(−Δ)), per token of a one-token rollout."""
    logprobs_BT = torch.tensor([[-1.0], [-1.0]], requires_grad=True)
    reference_BT = torch.tensor([[-1.0], [-2.0]])

    reinforce_kl(
        logprobs_BT, reference_BT, torch.tensor([1.0, 0.0]), torch.ones(2, 1), kl_coef=0.5
    ).sum().backward()  # type: ignore[no-untyped-call]

    assert logprobs_BT.grad is not None
    expected = [-1.0, 0.5 * (1 - math.exp(-1))]
    assert logprobs_BT.grad.squeeze(1).tolist() == pytest.approx(expected, abs=1e-6)
