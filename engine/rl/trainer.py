"""One optimizer update from rollouts and their advantages: REINFORCE with KL, AdamW, clip.

Knows neither rewards nor questions; the policy's weights change in `__call__` or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.hooks import check_abort
from engine.models.policy import Policy, Snapshot
from engine.rl.advantages import USED
from engine.rl.losses import k3, masked_mean, reinforce_kl
from engine.rl.scoring import Batch, score
from engine.rollout import Groups, Rollout

OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True)
class _Term:
    """One addend of the loss: a rollout with its advantage, and how often the step has it."""

    rollout: Rollout
    advantage: float
    count: int


@dataclass(frozen=True)
class _Update:
    """What one micro-batch adds to the step, each value summed over its rollouts."""

    loss: Tensor
    kl: float
    entropy: float


class Trainer:
    """The training seam of the loop: `(rollouts, advantages, step) → metrics`.

    `reference` is the step-0 policy; log-probabilities are read at `temp`, the temperature the
    rollouts were sampled with. Raises Aborted between two micro-batches, before any weight moved.
    """

    def __init__(
        self,
        policy: Policy,
        reference: Snapshot,
        *,
        lr: float,
        kl_coef: float,
        grad_clip: float,
        temp: float,
        micro_batch: int,
    ) -> None:
        self.policy = policy
        self.reference = reference
        self.kl_coef = kl_coef
        self.grad_clip = grad_clip
        self.temp = temp
        self.micro_batch = micro_batch
        self.optimizer = torch.optim.AdamW(policy.trainable().values(), lr=lr, weight_decay=0.0)

    def __call__(
        self, rollouts: Groups, advantages: Sequence[Sequence[float]], step: int
    ) -> Mapping[str, float]:
        """Gradients are divided by the rollouts used (|A| ≥ 1e-6); the others add nothing."""
        terms = _terms(rollouts, advantages)
        n_used = sum(term.count for term in terms)
        self.optimizer.zero_grad(set_to_none=True)
        loss = kl = entropy = 0.0
        try:
            for batch in self._micro_batches(terms):
                check_abort()
                update = self._backward(batch, n_used)
                loss += update.loss.item()
                kl += update.kl
                entropy += update.entropy
        except BaseException:
            self.optimizer.zero_grad(set_to_none=True)
            raise
        norm = self._apply(step)
        return {
            "train/loss": loss,
            "train/kl": kl / n_used,
            "train/entropy": entropy / n_used,
            "train/grad_norm": norm,
            "train/lr": self.optimizer.param_groups[0]["lr"],
        }

    def save(self, folder: Path) -> None:
        """The optimizer's moments, and which step last moved the weights."""
        state = {"optimizer": self.optimizer.state_dict(), "version": self.policy.version}
        torch.save(state, folder / OPTIMIZER)

    def load(self, folder: Path) -> None:
        """What `save(folder)` wrote; the learning rate is the config's."""
        lr = self.optimizer.param_groups[0]["lr"]
        state = torch.load(folder / OPTIMIZER, weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.policy.version = state["version"]
        self.optimizer.param_groups[0]["lr"] = lr

    def _micro_batches(self, terms: Sequence[_Term]) -> Sequence[Sequence[_Term]]:
        """Rollouts of like length together, so that little is padding."""
        ordered = sorted(
            terms, key=lambda t: len(t.rollout.prompt_ids) + len(t.rollout.completion_ids)
        )
        size = self.micro_batch
        return [ordered[start : start + size] for start in range(0, len(ordered), size)]

    def _backward(self, terms: Sequence[_Term], n_used: int) -> _Update:
        device = self.policy.device
        batch = Batch.of([term.rollout for term in terms], device)
        advantages_B = torch.tensor([term.advantage for term in terms], device=device)
        counts_B = torch.tensor([float(term.count) for term in terms], device=device)
        with torch.no_grad(), self.reference.in_place():
            reference_BT = score(self.policy.model, batch, self.temp).logprobs_BT
        scores = score(self.policy.model, batch, self.temp)
        losses_B = reinforce_kl(
            scores.logprobs_BT, reference_BT, advantages_B, batch.mask_BT, self.kl_coef
        )
        loss = (losses_B * counts_B).sum() / n_used
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            kl_B = masked_mean(k3(scores.logprobs_BT, reference_BT), batch.mask_BT)
            entropy_B = masked_mean(scores.entropy_BT, batch.mask_BT)
        return _Update(
            loss.detach(), (kl_B * counts_B).sum().item(), (entropy_B * counts_B).sum().item()
        )

    def _apply(self, step: int) -> float:
        """Clip and step; the gradient's norm before clipping."""
        parameters = self.policy.trainable().values()
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.policy.version = step
        return float(norm)


def _terms(rollouts: Groups, advantages: Sequence[Sequence[float]]) -> Sequence[_Term]:
    """The rollouts used; equal completions of a prompt are computed once and counted.

    A small model repeats itself: every second completion of the demo is its sibling's copy.
    """
    found: dict[tuple[tuple[int, ...], tuple[int, ...], float], _Term] = {}
    for group, advantages_G in zip(rollouts, advantages, strict=True):
        for rollout, advantage in zip(group, advantages_G, strict=True):
            if abs(advantage) >= USED:
                name = (rollout.prompt_ids, rollout.completion_ids, advantage)
                count = found[name].count if name in found else 0
                found[name] = _Term(rollout, advantage, count + 1)
    return list(found.values())
