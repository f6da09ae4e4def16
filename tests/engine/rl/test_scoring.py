"""Batches padded and packed, on a real tiny model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.contract.errors import RLLoopError
from engine.models.logprobs import backbone_and_head
from engine.models.policy import Policy
from engine.rl.packing_probe import refuse_mixing
from engine.rl.scoring import Batch, score
from engine.sampling.base import Rollout

CPU = torch.device("cpu")
EOS = 12


def rollout(prompt: Sequence[int], completion: Sequence[int]) -> Rollout:
    return Rollout("q", 0, tuple(prompt), tuple(completion), (), "", False, 0)


ROLLOUTS = [
    rollout([1, 2, 3], [4, EOS]),
    rollout([1], [5, 6, 7, 8, 9, 10, EOS]),
    rollout([4, 5, 6, 7], [EOS]),
    rollout([0, 0], [0, 0, EOS]),
]


def values(scores_BT: Tensor, mask_BT: Tensor) -> list[float]:
    found: list[float] = scores_BT[mask_BT > 0].tolist()
    return found


@pytest.mark.requirement("EX-02")
def test_a_pack_is_laid_out_without_padding() -> None:
    """Positions start anew with each rollout; each completion token is read one place earlier."""
    batch = Batch.packed([rollout([5, 6], [0, EOS]), rollout([5], [7])], CPU)

    assert batch.ids.tolist() == [[5, 6, 0, EOS, 5, 7]]
    assert batch.positions is not None
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch.targets_BT.tolist() == [[0, EOS], [7, 0]]
    assert batch.mask_BT.tolist() == [[1, 1], [1, 0]]
    assert batch.read_N is not None
    assert (batch.start + batch.read_N).tolist() == [1, 2, 4]


@pytest.mark.parametrize("chunk_bytes", [1, 2**20])
@pytest.mark.parametrize("cut", [True, False])
def test_packed_scores_and_gradients_equal_padded_ones(
    policy: Policy, chunk_bytes: int, cut: bool
) -> None:
    """To 1e-5 in fp32, with the body cut from its head or not, whole or piece by piece."""
    found = []
    way = backbone_and_head(policy.model) if cut else None
    for batch in (Batch.of(ROLLOUTS, CPU), Batch.packed(ROLLOUTS, CPU)):
        policy.model.zero_grad()
        scores = score(policy.model, batch, 0.8, backbone=way, chunk_bytes=chunk_bytes)
        (scores.logprobs_BT * batch.mask_BT).sum().backward()  # type: ignore[no-untyped-call]
        gradients = torch.cat(
            [p.grad.flatten() for p in policy.trainable().values() if p.grad is not None]
        )
        found.append(
            (
                values(scores.logprobs_BT, batch.mask_BT),
                values(scores.entropy_BT, batch.mask_BT),
                gradients,
            )
        )
    padded, packed = found

    assert packed[0] == pytest.approx(padded[0], abs=1e-5)
    assert packed[1] == pytest.approx(padded[1], abs=1e-5)
    assert torch.allclose(packed[2], padded[2], atol=1e-5, rtol=1e-5)


def test_fillers_score_zero(policy: Policy) -> None:
    """No exponential of a meaningless difference can overflow."""
    for batch in (Batch.of(ROLLOUTS, CPU), Batch.packed(ROLLOUTS, CPU)):
        scores = score(policy.model, batch, 0.8)

        outside_BT = batch.mask_BT == 0
        assert outside_BT.any()
        assert not scores.logprobs_BT[outside_BT].any()
        assert not scores.entropy_BT[outside_BT].any()


def test_a_model_that_lets_packed_rollouts_read_each_other_is_refused(policy: Policy) -> None:
    """It would train on, silently wrong; a look at two short rollouts tells."""
    refuse_mixing(policy, backbone_and_head(policy.model))
    whole = policy.model.forward

    def deaf(**inputs: Any) -> Any:
        inputs.pop("position_ids", None)
        return whole(**inputs)

    policy.model.forward = deaf

    with pytest.raises(RLLoopError, match=r"^optim.batching: lets rollouts read each other"):
        refuse_mixing(policy, None)
