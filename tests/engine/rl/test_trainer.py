"""Scoring, masks and updates on a real tiny model."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.contract.errors import RLLoopError
from engine.contract.rl.objective import PRESCRIBED, ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.data.rows import Question
from engine.models.policy import Policy, Snapshot
from engine.rl.advantages import step_advantages
from engine.rl.loss_terms import Tokens, combined_loss, k3
from engine.rl.minibatches import plan
from engine.rl.scoring import Batch, score
from engine.rl.trainer import Trainer
from engine.run.stop import Aborted, Collapsed, rl_hooks
from engine.sampling.base import Groups, Rollout
from engine.sampling.hf import HFSampler
from tests.engine.rl import paper_losses as papers

Advantages = Sequence[Sequence[float]]

CPU = torch.device("cpu")
EOS = 12
"""The embedded tokenizer's end token, which is its pad token too."""


def rollout(
    prompt: Sequence[int],
    completion: Sequence[int],
    logprobs: Sequence[float] = (),
    *,
    truncated: bool = False,
) -> Rollout:
    return Rollout("q", 0, tuple(prompt), tuple(completion), tuple(logprobs), "", truncated, 0)


def trainer_of(policy: Policy, **settings: Any) -> Trainer:
    defaults = {"lr": 1e-2, "kl_coef": 0.1, "grad_clip": 1.0, "temp": 0.8, "micro_batch": 64}
    return Trainer(policy, Snapshot(policy), **(defaults | settings))


def gradients_of(
    trainer: Trainer,
    groups: Groups,
    advantages: Advantages,
    metrics: dict[str, float] | None = None,
) -> list[Tensor]:
    """The gradients of each update, before clipping takes hold (it is set wide), flattened.

    `metrics` takes up what the trainer measured.
    """
    trainer.grad_clip = 1e9
    found: list[Tensor] = []

    def keep(optimizer: Any, *_: Any) -> None:
        parameters = optimizer.param_groups[0]["params"]
        found.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))

    handle = trainer.optimizer.register_step_pre_hook(keep)
    measured = trainer(groups, advantages, 1)
    handle.remove()
    if metrics is not None:
        metrics.update(measured)
    return found


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


@pytest.mark.parametrize("loss", sorted(PRESCRIBED))
def test_micro_batches_change_nothing_but_memory(policy: Policy, loss: Any) -> None:
    """Gradients of one rollout at a time add up to those of all at once, to 1e-6.

    In double precision: in single precision the processor's own order of sums is as large.
    """
    policy.model.double()
    objective = ObjectiveConfig(loss=loss)
    whole, pairs, single = (
        gradients_of(
            trainer_of(
                copy.deepcopy(policy), micro_batch=size, objective=objective, max_new_tokens=4
            ),
            GROUPS,
            ADVANTAGES,
        )[0]
        for size in (64, 2, 1)
    )

    scale = whole.abs().max()
    assert torch.allclose(pairs / scale, whole / scale, atol=1e-6, rtol=0)
    assert torch.allclose(single / scale, whole / scale, atol=1e-6, rtol=0)


def test_unused_rollouts_add_neither_loss_nor_kl(policy: Policy) -> None:
    """A tied group beside a ranked one changes no number of the update."""
    other = copy.deepcopy(policy)
    tied = [rollout([7, 8], [9, EOS]), rollout([7, 8], [1, EOS])]

    without = trainer_of(policy)(GROUPS[:1], ADVANTAGES[:1], 1)
    with_tied = trainer_of(other)([GROUPS[0], tied], [ADVANTAGES[0], [0.0, 0.0]], 1)

    assert with_tied["train/loss"] == pytest.approx(without["train/loss"], abs=1e-6)
    assert with_tied["train/grad_norm"] == pytest.approx(without["train/grad_norm"], rel=1e-5)


def moved(policy: Policy) -> None:
    """The weights of a run that has left its step 0, the same each time."""
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in policy.trainable().values():
            weights.add_(torch.randn(weights.shape, generator=noise) * 0.02)


def textbook_logprobs(policy: Policy, one: Rollout, temp: float) -> Tensor:
    """Of a completion's tokens, by a pass of its own: neither batch, mask nor chunk."""
    ids = [*one.prompt_ids, *one.completion_ids]
    logits = policy.model(torch.tensor([ids])).logits[0, len(one.prompt_ids) - 1 : -1]
    log_p = torch.log_softmax(logits.double() / temp, -1)
    return log_p.gather(1, torch.tensor(one.completion_ids)[:, None])[:, 0]


@pytest.mark.parametrize("loss", sorted(PRESCRIBED))
def test_a_rollout_in_the_middle_of_its_group_keeps_its_kl(policy: Policy, loss: Any) -> None:
    """Against each paper's loss over all rollouts of the group, in plain loops.

    `reinforce_kl` is over the rollouts used: one of advantage 0 adds neither loss nor KL.
    """
    group = [rollout([1, 2, 3], ids) for ids in ([4, EOS], [5, 6, EOS], [7, 8, 9, EOS])]
    advantages = [1.2, 0.0, -1.2]
    objective = ObjectiveConfig(loss=loss)
    limit = papers.BUDGET
    trainer = trainer_of(policy, kl_coef=0.5, objective=objective, max_new_tokens=limit)
    moved(policy)
    batch = []
    for one, advantage in zip(group, advantages, strict=True):
        if loss == "reinforce_kl" and not advantage:
            continue
        with torch.no_grad(), trainer.reference.in_place():
            reference = textbook_logprobs(policy, one, 0.8)
        now = textbook_logprobs(policy, one, 0.8)
        batch.append(papers.Sequence_(now, now.detach(), reference, advantage))
    expected = papers.PAPERS[loss](batch, 0.5)
    expected.backward()  # type: ignore[no-untyped-call]
    wanted = torch.cat(
        [p.grad.flatten() for p in policy.trainable().values() if p.grad is not None]
    )
    with torch.no_grad():
        kl = torch.stack([k3(s.now, s.reference).mean() for s in batch]).mean()

    trainer.optimizer.zero_grad()
    metrics: dict[str, float] = {}
    [found] = gradients_of(trainer, [group], [advantages], metrics)

    assert torch.allclose(found, wanted, atol=1e-5 * wanted.abs().max().item(), rtol=0)
    assert metrics["train/loss"] == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    assert metrics["train/kl"] == pytest.approx(kl.item(), rel=1e-3)


def test_without_a_kl_term_a_rollout_in_the_middle_costs_no_pass(policy: Policy) -> None:
    """Nothing of it could be learnt."""
    trainer = trainer_of(policy, kl_coef=0.0, objective=ObjectiveConfig(loss="grpo"))
    rows: list[int] = []
    policy.model.model.register_forward_pre_hook(
        lambda _module, _args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )

    trainer([[*GROUPS[0], rollout([1, 2, 3], [9, EOS])]], [[1.0, -1.0, 0.0]], 1)

    assert rows == [2, 2]


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
    trainer.save(tmp_path)
    trainer(GROUPS, ADVANTAGES, 7)
    expected = {name: p.detach().clone() for name, p in policy.trainable().items()}

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


# --- several updates a step ---

SEVERAL = ObjectiveConfig(loss="grpo", epochs=2, minibatches=2)


@pytest.mark.requirement("EX-01")
@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_the_first_update_of_a_step_is_exactly_on_policy(policy: Policy, loss: Any) -> None:
    """Ratio 1 to the last bit, nothing clipped: also where the old values took their own pass."""
    once, several = (
        trainer_of(
            copy.deepcopy(policy),
            objective=ObjectiveConfig(loss=loss, epochs=epochs),
            max_new_tokens=4,
            micro_batch=3,
        )
        for epochs in (1, 3)
    )

    first = once(GROUPS, ADVANTAGES, 1)
    thrice = several(GROUPS, ADVANTAGES, 1)

    assert first["train/ratio_error_first"] == thrice["train/ratio_error_first"] == 0.0
    assert first["train/clip_fraction"] == 0.0
    assert (first["train/updates"], thrice["train/updates"]) == (1, 3)
    assert thrice["train/clip_fraction"] > 0  # lr 1e-2 soon leaves the bounds


def test_updates_see_the_ratio_to_the_weights_that_scored_first(policy: Policy) -> None:
    """The second of two updates is GRPO's gradient at the moved weights against the old values."""
    trainer = trainer_of(
        policy, objective=ObjectiveConfig(loss="grpo", epochs=2), kl_coef=0.0, lr=1e-3
    )
    batch = Batch.of([r for group in GROUPS for r in group], CPU)
    with torch.no_grad():
        old_BT = score(policy.model, batch, 0.8).logprobs_BT
    apart = copy.deepcopy(policy)
    first, second = gradients_of(trainer, GROUPS, ADVANTAGES)
    del trainer

    other = trainer_of(apart, objective=ObjectiveConfig(loss="grpo"), kl_coef=0.0, lr=1e-3)
    [alone] = gradients_of(other, GROUPS, ADVANTAGES)
    scores = score(apart.model, batch, 0.8)
    ratio_BT = torch.exp(scores.logprobs_BT - old_BT)
    advantages_B1 = torch.tensor([a for row in ADVANTAGES for a in row])[:, None]
    worse_BT = torch.minimum(ratio_BT * advantages_B1, ratio_BT.clamp(0.8, 1.2) * advantages_B1)
    loss = -((worse_BT * batch.mask_BT).sum(-1) / batch.mask_BT.sum(-1)).mean()
    expected = torch.autograd.grad(loss, list(apart.trainable().values()))

    assert torch.allclose(first, alone, atol=1e-6)
    assert torch.allclose(second, torch.cat([g.flatten() for g in expected]), atol=1e-5)


def test_minibatches_are_updates_of_their_own(policy: Policy) -> None:
    """Two prompts in two parts: each update divides by its own rollouts."""
    other = copy.deepcopy(policy)
    trainer = trainer_of(policy, objective=ObjectiveConfig(loss="grpo", minibatches=2))

    first, second = gradients_of(trainer, GROUPS, ADVANTAGES)
    [alone] = gradients_of(
        trainer_of(other, objective=ObjectiveConfig(loss="grpo")), GROUPS[:1], ADVANTAGES[:1]
    )

    assert torch.allclose(first, alone, atol=1e-6)
    assert not torch.allclose(second, alone, atol=1e-3)


def test_an_abort_between_two_updates_takes_the_first_one_back(policy: Policy) -> None:
    """A step is whole or nothing also when it consists of four updates."""
    trainer = trainer_of(policy, objective=SEVERAL)
    trainer(GROUPS, ADVANTAGES, 1)
    weights = {name: p.detach().clone() for name, p in policy.trainable().items()}
    moments = copy.deepcopy(trainer.optimizer.state_dict())
    asked = 0

    def after_an_update() -> bool:
        nonlocal asked
        asked += 1
        return asked == 4  # two passes fix the old values, the third is the first update

    with pytest.raises(Aborted), rl_hooks(should_abort=after_an_update):
        trainer(GROUPS, ADVANTAGES, 2)

    assert all(torch.equal(p, weights[name]) for name, p in policy.trainable().items())
    restored = trainer.optimizer.state_dict()["state"]
    for index, state in moments["state"].items():
        assert all(torch.equal(restored[index][key], value) for key, value in state.items())
    assert policy.version == 1


# --- groups without signal, truncated completions ---

TIED = [rollout([7, 8], [9, EOS]), rollout([7, 8], [1, 3, EOS])]


@pytest.mark.requirement("EX-17")
@pytest.mark.parametrize(("zero_signal", "share"), [("keep", 0.5), ("filter", 1.0)])
def test_a_group_without_signal_costs_no_pass_and_counts_where_it_is_kept(
    policy: Policy, zero_signal: Any, share: float
) -> None:
    """Without a KL term: kept, it stands in the denominator alone; filtered, it is as if it had not
    been sampled.
    """
    objective = ObjectiveConfig(loss="grpo", zero_signal=zero_signal)
    rows: list[int] = []
    other = copy.deepcopy(policy)
    policy.model.model.register_forward_pre_hook(
        lambda _module, _args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    trainer = trainer_of(policy, objective=objective, kl_coef=0.0)
    rows.clear()

    [found] = gradients_of(trainer, [GROUPS[0], TIED], [ADVANTAGES[0], [0.0, 0.0]])
    [alone] = gradients_of(
        trainer_of(other, objective=objective, kl_coef=0.0), GROUPS[:1], ADVANTAGES[:1]
    )

    assert rows == [2, 2]  # reference and update, each over the two rollouts of the other group
    assert torch.allclose(found, alone * share, atol=1e-6)


@pytest.mark.requirement("RL-17")
@pytest.mark.parametrize("loss", ["grpo", "gspo", "cispo", "dapo", "rloo", "dr_grpo"])
def test_a_tied_group_that_is_kept_has_its_kl_term(loss: Any) -> None:
    """By hand: β (1 − π_ref / π) / 4 = 0.1 (1 − e^(−1.5 + 1)) / 4 = 0.0098367 a tied rollout.

    2 × 2 completions of one token, rewards (1, 0) and (1, 1), log π −1.0, reference −1.5: GRPO's
    equation 3 (arXiv 2402.03300), and TRL 1.16's losses.
    """
    objective = ObjectiveConfig(loss=loss, zero_signal="keep", overlong_buffer=0)
    groups = [[rollout([p], [c]) for c in (3, 4)] for p in (1, 2)]
    advantages = step_advantages([[1.0, 0.0], [1.0, 1.0]], groups, objective, 1)

    [minibatch] = plan(
        groups, advantages, objective, OptimConfig(), kl_coef=0.1, micro_batch=64, max_new_tokens=1
    )

    [micro] = minibatch.micro_batches
    logprobs = torch.full((4, 1), -1.0, dtype=torch.float64, requires_grad=True)
    tied = torch.tensor([term.rollout.prompt_ids == (2,) for term in micro.terms])
    loss_, _ = combined_loss(
        objective,
        Tokens(
            logprobs,
            logprobs.detach(),
            torch.tensor([term.advantage for term in micro.terms], dtype=torch.float64),
            torch.ones(4, 1, dtype=torch.float64),
        ),
        kl_coef=0.1,
        reference_BT=torch.full((4, 1), -1.5, dtype=torch.float64),
        counts_B=torch.tensor([float(term.count) for term in micro.terms], dtype=torch.float64),
        denominator=minibatch.denominators.of(objective.aggregation_used),
    )
    loss_.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert logprobs.grad[tied].flatten().tolist() == pytest.approx([0.0098367] * 2, abs=1e-7)


@pytest.mark.parametrize("loss", ["grpo", "gspo", "cispo", "rloo", "dr_grpo"])
@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_a_tied_group_pulls_towards_the_reference_however_the_step_is_cut(
    policy: Policy, loss: Any, batching: Any
) -> None:
    """Against each paper's loss in plain loops, padded and packed."""
    objective = ObjectiveConfig(loss=loss, zero_signal="keep")
    groups, advantages = [GROUPS[0], TIED], [ADVANTAGES[0], [0.0, 0.0]]
    settings: dict[str, Any] = {
        "kl_coef": 0.5,
        "objective": objective,
        "max_new_tokens": papers.BUDGET,
        "optim": OptimConfig(batching=batching),
    }
    trainer = trainer_of(policy, **settings)
    moved(policy)
    batch = []
    for group, advantages_G in zip(groups, advantages, strict=True):
        for one, advantage in zip(group, advantages_G, strict=True):
            with torch.no_grad(), trainer.reference.in_place():
                reference = textbook_logprobs(policy, one, 0.8)
            now = textbook_logprobs(policy, one, 0.8)
            batch.append(papers.Sequence_(now, now.detach(), reference, advantage))
    papers.PAPERS[loss](batch, 0.5).backward()  # type: ignore[no-untyped-call]
    wanted = torch.cat(
        [p.grad.flatten() for p in policy.trainable().values() if p.grad is not None]
    )
    trainer.optimizer.zero_grad()

    [found] = gradients_of(trainer, groups, advantages)

    assert torch.allclose(found, wanted, atol=1e-5 * wanted.abs().max().item(), rtol=0)


def test_a_minibatch_of_tied_groups_alone_is_an_update_of_its_kl(policy: Policy) -> None:
    """Each part of a step has its own denominator; one that ties is no part without a loss."""
    objective = ObjectiveConfig(loss="grpo", minibatches=2)
    trainer = trainer_of(policy, objective=objective)
    moved(policy)

    metrics = trainer([GROUPS[0], TIED], [ADVANTAGES[0], [0.0, 0.0]], 1)

    assert metrics["train/updates"] == 2


@pytest.mark.parametrize("zero_signal", ["filter", "refill"])
def test_a_tied_group_that_leaves_the_batch_has_no_kl_term(
    policy: Policy, zero_signal: Any
) -> None:
    """It is as if it had not been sampled, in loss and denominator."""
    objective = ObjectiveConfig(loss="grpo", zero_signal=zero_signal)
    other = copy.deepcopy(policy)
    trainers = [trainer_of(one, objective=objective) for one in (policy, other)]
    for one in (policy, other):
        moved(one)

    [found] = gradients_of(trainers[0], [GROUPS[0], TIED], [ADVANTAGES[0], [0.0, 0.0]])
    [alone] = gradients_of(trainers[1], GROUPS[:1], ADVANTAGES[:1])

    assert torch.allclose(found, alone, atol=1e-6)


def test_a_step_in_which_nothing_can_be_trained_changes_nothing(policy: Policy) -> None:
    """Empty completions have no token; the weights, the moments and the version stay."""
    before = {name: p.detach().clone() for name, p in policy.trainable().items()}
    trainer = trainer_of(policy)

    metrics = trainer([[rollout([1], []), rollout([1], [])]], [[1.0, -1.0]], 5)

    assert metrics["train/updates"] == 0
    assert all(torch.equal(p, before[name]) for name, p in policy.trainable().items())
    assert policy.version == 0


def test_a_masked_truncated_completion_leaves_the_token_count(policy: Policy) -> None:
    """With the token mean its tokens are in no denominator; without masking they are."""
    cut = rollout([1, 2, 3], [5, 6, 7, 8], truncated=True)
    groups = [[GROUPS[0][0], rollout([1, 2, 3], [EOS]), cut]]
    advantages = [[1.0, -1.0, 0.0]]

    masked, counted = (
        gradients_of(
            trainer_of(
                copy.deepcopy(policy),
                objective=ObjectiveConfig(loss="dapo", truncated=truncated),
                max_new_tokens=4,
            ),
            groups,
            advantages,
        )[0]
        for truncated in ("mask", "train")
    )

    assert torch.allclose(masked * 3, counted * 7, atol=1e-5)  # 2 + 1 tokens against 2 + 1 + 4


# --- the sampler against the trainer ---


def sampled(policy: Policy, temp: float) -> Groups:
    sampler = HFSampler(policy, 0, "train", temp, 6, 64)
    return sampler([Question("a", "1+2=", ""), Question("b", "13+2=", "")], 4)


@pytest.mark.requirement("EX-01")
@pytest.mark.parametrize("temp", [0.5, 1.0, 1.7])
def test_sampler_and_trainer_agree_on_every_log_probability(policy: Policy, temp: float) -> None:
    """One convention: the temperature scales the logits on both sides, in fp32."""
    trainer = trainer_of(policy, temp=temp)

    metrics = trainer(sampled(policy, temp), [[1.0, -1.0, 0.5, -0.5]] * 2, 1)

    assert metrics["train/sampler_gap_max"] < 1e-5
    assert metrics["train/sampler_gap_mean"] <= metrics["train/sampler_gap_max"]
    assert abs(metrics["train/sampler_kl"]) < 1e-6


@pytest.mark.requirement("EX-01")
def test_a_sampler_at_another_temperature_shows(policy: Policy) -> None:
    """The gap is what tells that logits were scaled on one side alone."""
    trainer = trainer_of(policy, temp=1.0, objective=ObjectiveConfig(sampler_gap_limit=9))

    metrics = trainer(sampled(policy, 0.5), [[1.0, -1.0, 0.5, -0.5]] * 2, 1)

    assert metrics["train/sampler_gap_mean"] > ObjectiveConfig().sampler_gap_warn
    assert metrics["train/sampler_kl"] > 1e-3


@pytest.mark.requirement("EX-01")
def test_truncated_importance_sampling_weighs_each_token_up_to_the_cap(policy: Policy) -> None:
    """A sampler that thought its tokens 3 times less likely weighs 2, one 4 times more weighs ¼."""
    batch = Batch.of(GROUPS[0], CPU)
    with torch.no_grad():
        now_BT = score(policy.model, batch, 0.8).logprobs_BT
    rows = [row[mask > 0] for row, mask in zip(now_BT, batch.mask_BT, strict=True)]
    for factor, weight, capped in ((3.0, 2.0, 1.0), (0.25, 0.25, 0.0)):
        group = [
            rollout(r.prompt_ids, r.completion_ids, (row - math.log(factor)).tolist())
            for r, row in zip(GROUPS[0], rows, strict=True)
        ]
        plain, corrected = (
            trainer_of(
                copy.deepcopy(policy),
                lr=0.0,
                kl_coef=0.0,
                objective=ObjectiveConfig(sampler_correction=correction, sampler_gap_limit=9),
            )
            for correction in ("none", "tis")
        )

        [alone] = gradients_of(plain, [group], ADVANTAGES[:1])
        [weighed] = gradients_of(corrected, [group], ADVANTAGES[:1])
        metrics = corrected([group], ADVANTAGES[:1], 2)

        assert torch.allclose(weighed, alone * weight, atol=1e-5)
        assert metrics["train/tis_weight"] == pytest.approx(weight, abs=1e-5)
        assert metrics["train/tis_capped"] == capped
        assert plain([group], ADVANTAGES[:1], 2).keys() == metrics.keys() - {
            "train/tis_weight",
            "train/tis_capped",
        }


@pytest.mark.requirement("EX-01")
def test_rollouts_of_older_weights_are_no_gap_between_the_engines(policy: Policy) -> None:
    """Read again from the buffer they lie apart by design; the correction weighs them all."""
    tis = ObjectiveConfig(sampler_correction="tis")
    trainer = trainer_of(policy, lr=0.0, objective=tis)
    advantages = [1.0, -1.0, 0.5, -0.5]
    new, old = sampled(policy, 0.8)
    policy.version = 1
    new = [replace(one, version=1) for one in new]
    old = [replace(one, logprobs=tuple(p - 3.0 for p in one.logprobs)) for one in old]

    both = trainer([new, old], [advantages] * 2, 1)
    again = trainer([old], [advantages], 1)

    assert both["train/sampler_gap_max"] < 1e-5
    assert 1 < both["train/tis_weight"] < 2
    assert both.keys() - again.keys() == {
        "train/sampler_gap_max",
        "train/sampler_gap_mean",
        "train/sampler_kl",
    }
    assert (again["train/tis_weight"], again["train/tis_capped"]) == (2.0, 1.0)


def test_a_correction_without_the_samplers_log_probabilities_is_refused(policy: Policy) -> None:
    """It would silently correct nothing."""
    trainer = trainer_of(policy, objective=ObjectiveConfig(sampler_correction="tis"))

    with pytest.raises(RLLoopError, match=r"^objective.sampler_correction: needs the sampler's"):
        trainer(GROUPS, ADVANTAGES, 1)


# --- numbers that are not finite ---


@pytest.mark.parametrize("objective", [ObjectiveConfig(), SEVERAL])
def test_a_loss_that_is_not_finite_ends_the_run_and_moves_no_weight(
    policy: Policy, objective: ObjectiveConfig
) -> None:
    """The message says step, what and what to do."""
    trainer = trainer_of(policy, objective=objective)
    before = {name: p.detach().clone() for name, p in policy.trainable().items()}

    with pytest.raises(
        Collapsed, match=r"^step 3: not a number: the loss is (nan|inf);.*lower lr"
    ) as caught:
        trainer(GROUPS, [ADVANTAGES[0], [3e38, -3e38]], 3)

    assert caught.value.diagnosis.rule == "not a number"
    assert all(torch.equal(p, before[name]) for name, p in policy.trainable().items())
    assert all(p.grad is None for p in policy.trainable().values())


def test_an_update_that_is_not_finite_can_be_left_out(policy: Policy) -> None:
    """The step goes on with its other updates, says how many are missing, and keeps no NaN."""
    trainer = trainer_of(
        policy,
        objective=ObjectiveConfig(loss="grpo", minibatches=2),
        optim=OptimConfig(nonfinite="skip"),
    )

    metrics = trainer(GROUPS, [ADVANTAGES[0], [3e38, -3e38]], 3)

    assert (metrics["train/updates"], metrics["train/skipped"]) == (1, 1)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(p.isfinite().all() for p in policy.trainable().values())
    assert policy.version == 3


# --- the optimizer's settings, memory, precision ---


def test_adamw_gets_its_settings(policy: Policy) -> None:
    """β, ε and weight decay come from `optim`."""
    settings = OptimConfig(adam_beta1=0.8, adam_beta2=0.95, adam_eps=1e-4, weight_decay=0.1)

    [group] = trainer_of(policy, optim=settings).optimizer.param_groups

    assert group["betas"] == (0.8, 0.95)
    assert (group["eps"], group["weight_decay"]) == (1e-4, 0.1)


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"warmup_steps": 2}, [0.5, 1, 1, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ({"schedule": "linear", "final_lr_share": 0.4}, [1, 0.9, 0.8, 0.7, 0.6, 0.5]),
        ({"schedule": "linear", "warmup_steps": 2}, [0.5, 1, 0.8, 0.6, 0.4, 0.2]),
        (
            {"schedule": "cosine", "warmup_steps": 2},
            [0.5, 1, 0.904508, 0.654508, 0.345492, 0.095492],
        ),
    ],
)
def test_the_learning_rate_follows_its_schedule(
    policy: Policy, settings: dict[str, Any], shares: list[float]
) -> None:
    """Up over `warmup_steps`, then down towards its final share behind `max_steps`."""
    optim = OptimConfig(**settings)
    trainer = trainer_of(policy, optim=optim, lr=1e-4, max_steps=6)

    found = [trainer(GROUPS, ADVANTAGES, step)["train/lr"] for step in range(1, 7)]

    assert found == pytest.approx([1e-4 * share for share in shares], abs=1e-9)


def test_a_lowered_learning_rate_stays_lowered_over_a_resume(
    policy: Policy, tmp_path: Path
) -> None:
    """`lr_scale` travels in the checkpoint; the schedule needs nothing there."""
    trainer = trainer_of(policy)
    trainer.lr_scale = 0.5
    trainer.save(tmp_path)

    resumed = trainer_of(policy)
    resumed.load(tmp_path)

    assert resumed(GROUPS, ADVANTAGES, 1)["train/lr"] == 5e-3


@pytest.mark.parametrize("pack_tokens", [16, 4096])
def test_a_packed_update_equals_a_padded_one(policy: Policy, pack_tokens: int) -> None:
    """In one pack or in several; the gradient to 1e-5."""
    packed, padded = (
        gradients_of(
            trainer_of(
                copy.deepcopy(policy),
                optim=OptimConfig(batching=batching, pack_tokens=pack_tokens),
            ),
            GROUPS,
            ADVANTAGES,
        )[0]
        for batching in ("packed", "padded")
    )

    assert torch.allclose(packed, padded, atol=1e-5)


def test_layers_computed_again_give_the_same_gradient_from_less_memory(policy: Policy) -> None:
    """Gradient checkpointing keeps each layer's input alone; sampling keeps its cache."""

    def run(*, checkpointing: bool) -> tuple[Tensor, int]:
        kept = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        apart = copy.deepcopy(policy)
        trainer = trainer_of(apart, optim=OptimConfig(gradient_checkpointing=checkpointing))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            [found] = gradients_of(trainer, GROUPS, ADVANTAGES)
        assert not any(module.training for module in apart.model.modules())
        assert sampled(apart, 1.0)
        return found, kept

    (plain, much), (again, little) = run(checkpointing=False), run(checkpointing=True)

    assert torch.equal(plain, again)
    assert little < 0.8 * much
