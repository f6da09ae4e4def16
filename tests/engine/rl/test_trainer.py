"""Scoring, masks and updates on a real tiny model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.hooks import Aborted, rl_hooks
from engine.models.policy import Policy, Snapshot
from engine.rl.losses import k3
from engine.rl.scoring import Batch, score
from engine.rl.trainer import Trainer
from engine.rollout import Rollout

CPU = torch.device("cpu")
EOS = 12
"""The embedded tokenizer's end token, which is its pad token too."""


def rollout(prompt: Sequence[int], completion: Sequence[int]) -> Rollout:
    return Rollout("q", 0, tuple(prompt), tuple(completion), (), "", False, 0)


def trainer_of(policy: Policy, **settings: Any) -> Trainer:
    defaults = {"lr": 1e-2, "kl_coef": 0.1, "grad_clip": 1.0, "temp": 0.8, "micro_batch": 64}
    return Trainer(policy, Snapshot(policy), **(defaults | settings))


@pytest.mark.requirement("EX-02")
def test_masks_come_from_lengths_and_never_from_a_token() -> None:
    """EOS is a target also where pad = EOS, and id 0 inside a completion is a word."""
    batch = Batch.of([rollout([5, 6], [0, 0, EOS]), rollout([5], [7, EOS])], CPU)

    # T = 0 predicts the token behind position 0, the end of the shorter prompt
    assert batch.start == 0
    assert batch.mask_BT.tolist() == [[0, 1, 1, 1], [1, 1, 0, 0]]
    assert batch.ids.tolist() == [[5, 6, 0, 0, EOS], [5, 7, EOS, 0, 0]]


@pytest.mark.requirement("EX-02")
@pytest.mark.parametrize("token", [EOS, 0])
def test_eos_and_id_zero_get_their_gradient(policy: Policy, token: int) -> None:
    """Rewarding a rollout of that one token makes the token likelier."""
    rewarded, other = rollout([1, 2], [token]), rollout([1, 2], [3])
    batch = Batch.of([rewarded], CPU)
    before = score(policy.model, batch, 0.8).logprobs_BT.item()

    trainer_of(policy)([[rewarded, other]], [[1.0, -1.0]], 1)

    assert score(policy.model, batch, 0.8).logprobs_BT.item() > before + 0.01


def test_a_rollouts_score_does_not_depend_on_its_neighbours(policy: Policy) -> None:
    """Right padding is never looked at."""
    short, long = rollout([1, 2, 3], [4, EOS]), rollout([1], [5, 6, 7, 8, 9, 10, EOS])

    with torch.no_grad():
        together, alone = (
            score(policy.model, batch, 0.8).logprobs_BT[0][batch.mask_BT[0] > 0]
            for batch in (Batch.of([short, long], CPU), Batch.of([short], CPU))
        )

    assert together.tolist() == pytest.approx(alone.tolist(), abs=1e-5)


def test_scores_equal_the_textbooks(policy: Policy) -> None:
    """log softmax(logits / temp) at each completion token, entropy −Σ p log p."""
    r = rollout([1, 2], [3, EOS])
    with torch.no_grad():
        scores = score(policy.model, Batch.of([r], CPU), 0.5)
        logits = policy.model(torch.tensor([[1, 2, 3, EOS]])).logits[0]

    log_p = torch.log_softmax(logits[1:3] / 0.5, -1)
    expected = [log_p[0, 3].item(), log_p[1, EOS].item()]
    assert scores.logprobs_BT[0].tolist() == pytest.approx(expected, abs=1e-5)
    entropy = -(log_p.exp() * log_p).sum(-1)
    assert scores.entropy_BT[0].tolist() == pytest.approx(entropy.tolist(), abs=1e-5)


GROUPS = [
    [rollout([1, 2, 3], [4, EOS]), rollout([1, 2, 3], [5, 6, EOS])],
    [rollout([4, 5], [EOS]), rollout([4, 5], [6, 7, 8, 9])],
]
ADVANTAGES = [[1.0, -1.0], [-1.0, 1.0]]


def test_micro_batches_change_nothing_but_memory(policy: Policy) -> None:
    """Gradients of one rollout at a time add up to those of all at once."""
    other = copy.deepcopy(policy)

    whole = trainer_of(policy, micro_batch=64)(GROUPS, ADVANTAGES, 1)
    parts = trainer_of(other, micro_batch=1)(GROUPS, ADVANTAGES, 1)

    assert parts["train/loss"] == pytest.approx(whole["train/loss"], abs=1e-5)
    assert parts["train/grad_norm"] == pytest.approx(whole["train/grad_norm"], rel=1e-4)


def test_unused_rollouts_add_neither_loss_nor_kl(policy: Policy) -> None:
    """A tied group beside a ranked one changes no number of the update."""
    other = copy.deepcopy(policy)
    tied = [rollout([7, 8], [9, EOS]), rollout([7, 8], [1, EOS])]

    without = trainer_of(policy)(GROUPS[:1], ADVANTAGES[:1], 1)
    with_tied = trainer_of(other)([GROUPS[0], tied], [ADVANTAGES[0], [0.0, 0.0]], 1)

    assert with_tied["train/loss"] == pytest.approx(without["train/loss"], abs=1e-6)
    assert with_tied["train/grad_norm"] == pytest.approx(without["train/grad_norm"], rel=1e-5)


def test_equal_completions_are_counted_and_not_lost(policy: Policy) -> None:
    """Computed once, they weigh in loss, KL and gradient as if each had been computed."""
    other, (right, wrong) = copy.deepcopy(policy), GROUPS[0]
    advantages = [1 / 3, 1 / 3, 1 / 3, -1.0]

    counted = trainer_of(policy)([[right, right, right, wrong]], [advantages], 1)
    apart = [1 / 3 + 1e-9, 1 / 3, 1 / 3 - 1e-9, -1.0]  # too unequal to be taken together
    computed = trainer_of(other)([[right, right, right, wrong]], [apart], 1)

    for name, value in computed.items():
        assert counted[name] == pytest.approx(value, rel=1e-4, abs=1e-6)


def test_the_reference_stays_the_step_zero_policy(policy: Policy) -> None:
    """K3 is 0 at the first update and measured against the frozen weights ever after."""
    trainer = trainer_of(policy)
    batch = Batch.of([GROUPS[0][0]], CPU)
    with torch.no_grad():
        reference_BT = score(policy.model, batch, 0.8).logprobs_BT

    first = trainer(GROUPS, ADVANTAGES, 1)
    second = trainer(GROUPS, ADVANTAGES, 2)

    assert first["train/kl"] == pytest.approx(0, abs=1e-6)
    assert second["train/kl"] > 1e-4
    with torch.no_grad(), trainer.reference.in_place():
        assert torch.equal(score(policy.model, batch, 0.8).logprobs_BT, reference_BT)
    with torch.no_grad():
        now_BT = score(policy.model, batch, 0.8).logprobs_BT
    assert k3(now_BT, reference_BT).sum().item() > 1e-4


def test_an_abort_between_micro_batches_leaves_weights_and_gradients_untouched(
    policy: Policy,
) -> None:
    """The update happens whole or not at all."""
    trainer = trainer_of(policy, micro_batch=1)
    before = {name: p.detach().clone() for name, p in policy.trainable().items()}
    asked = 0

    def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    with pytest.raises(Aborted), rl_hooks(should_abort=third_time):
        trainer(GROUPS, ADVANTAGES, 1)

    for name, parameter in policy.trainable().items():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
    assert policy.version == 0


def test_a_restored_trainer_goes_on_with_moments_and_version(
    policy: Policy, tmp_path: Path
) -> None:
    """Steps that tied moved nothing: the version is the last update's and not the step's."""
    trainer = trainer_of(policy)
    trainer(GROUPS, ADVANTAGES, 3)
    policy.save(tmp_path)
    trainer.save(tmp_path)
    trainer(GROUPS, ADVANTAGES, 7)
    expected = {name: p.detach().clone() for name, p in policy.trainable().items()}

    policy.load(tmp_path, version=6)
    trainer.load(tmp_path)
    restored = policy.version
    trainer(GROUPS, ADVANTAGES, 7)

    assert restored == 3
    assert all(torch.equal(p, expected[name]) for name, p in policy.trainable().items())


def test_the_gradient_is_clipped_to_its_norm(policy: Policy) -> None:
    """The reported norm is the one before clipping."""
    trainer = trainer_of(policy, grad_clip=1e-9, lr=1e-2)

    metrics = trainer(GROUPS, ADVANTAGES, 1)

    assert metrics["train/grad_norm"] > 0.1
    assert metrics["train/lr"] == 1e-2
