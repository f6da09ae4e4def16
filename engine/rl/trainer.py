"""The optimizer updates of a step, from rollouts and their advantages: any loss, AdamW, clip.

Knows neither rewards nor questions; the policy's weights change in `__call__` or not at all.
Shapes: B rollouts, T completion positions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.contract.errors import RLLoopError
from engine.contract.rl.objective import ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.models import recompute
from engine.models.logprobs import backbone_and_head
from engine.models.policy import Policy, Snapshot
from engine.rl.farthest import Farthest
from engine.rl.loss_terms import Tokens, combined_loss, k3, masked_mean
from engine.rl.minibatches import MicroBatch, Minibatch, plan
from engine.rl.packing_probe import refuse_mixing
from engine.rl.scoring import Batch, TokenScores, score
from engine.rl.tally import SamplerGap, Tally
from engine.run.ranks import Ranks
from engine.run.stop import Collapsed, Diagnosis, check_abort
from engine.sampling.base import Groups, Rollout
from engine.sampling.contradiction import Evidence, require_whole

OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True)
class _Inputs:
    """A micro-batch as tensors, with what an update must not change any more."""

    batch: Batch
    rollouts: Sequence[Rollout]
    advantages_B: Tensor  # noqa: N815 - shape suffix
    counts_B: Tensor  # noqa: N815 - shape suffix
    fresh_B: Tensor  # noqa: N815 - shape suffix
    """1 for a rollout of the weights that the step begins with, 0 for one of older weights."""
    sampler_BT: Tensor | None  # noqa: N815 - shape suffix
    """The log-probabilities the sampler wrote down; None where a rollout has none."""
    reference_BT: Tensor  # noqa: N815 - shape suffix
    old_BT: Tensor | None  # noqa: N815 - shape suffix
    """None while the weights have not moved: the pass with gradient gives them too."""


class Trainer:
    """The training seam of the loop: `(rollouts, advantages, step) → metrics`.

    `reference` is the step-0 policy; log-probabilities are read at `temp`, the temperature the
    rollouts were sampled with. Raises Aborted between two micro-batches, and Collapsed for a
    loss or gradient that is no number; the weights are those from before the step then.
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
        max_new_tokens: int = 1,
        max_steps: int = 1,
        objective: ObjectiveConfig = ObjectiveConfig(),  # noqa: B008 - frozen
        optim: OptimConfig = OptimConfig(),  # noqa: B008 - frozen
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
    ) -> None:
        """`ranks`: each learns its own groups of what all are given, and they add gradients up."""
        self.policy = policy
        self.ranks = ranks
        self.reference = reference
        self.lr = lr
        self.kl_coef = kl_coef
        self.grad_clip = grad_clip
        self.temp = temp
        self.micro_batch = micro_batch
        self.max_new_tokens = max_new_tokens
        self.max_steps = max_steps
        self.objective = objective
        self.optim = optim
        self.farthest: Farthest | None = None
        """Of the last step: the token whose KL to the reference was the largest."""
        self.lr_scale = 1.0
        """Multiplies the learning rate; whoever rolls a run back may lower it. Checkpointed."""
        with policy.computing():
            self._backbone = backbone_and_head(policy.model)
        if optim.gradient_checkpointing:
            recompute.prepare(policy.model)
        if optim.batching == "packed":
            refuse_mixing(policy, self._backbone)
        self.optimizer = torch.optim.AdamW(
            policy.trainable().values(),
            lr=lr,
            betas=(optim.adam_beta1, optim.adam_beta2),
            eps=optim.adam_eps,
            weight_decay=optim.weight_decay,
        )

    def __call__(
        self, rollouts: Groups, advantages: Sequence[Sequence[float]], step: int
    ) -> Mapping[str, float]:
        """`objective.epochs` × `objective.minibatches` updates, those without signal left out.

        Raises SamplerContradicted, SamplerMalformed.
        """
        require_whole(rollout for group in rollouts for rollout in group)
        minibatches = plan(
            rollouts,
            advantages,
            self.objective,
            self.optim,
            kl_coef=self.kl_coef,
            micro_batch=self.micro_batch,
            max_new_tokens=self.max_new_tokens,
            mine=self.ranks.part,
        )
        lr = self._schedule(step)
        limit = self.objective.sampler_gap_limit_used(self.policy.precision, self.temp)
        tally, gap = Tally(), SamplerGap(Evidence(limit))
        updates = self.objective.epochs * len(minibatches)
        with self._whole_or_nothing(updates):
            fixed = self._fixed(minibatches) if updates > 1 else {}
            for epoch in range(self.objective.epochs):
                for minibatch in minibatches:
                    self._update(minibatch, step, fixed, tally, gap if epoch == 0 else None)
        gap = SamplerGap.of_all(self.ranks.gather([gap]))
        if tally.updates:
            self.policy.version = step
        self.farthest = tally.farthest
        ratios = tally.ratio_metrics() if self.objective.prescribed.ratio else {}
        skipped = {"train/skipped": float(tally.skipped)} if tally.skipped else {}
        return tally.metrics() | {"train/lr": lr} | ratios | gap.metrics() | skipped

    def save(self, folder: Path) -> None:
        """The policy, the optimizer's moments, which step last moved the weights, the lr's scale.

        The schedule needs no state: it depends on the step alone.
        """
        self.policy.save(folder)
        state = {
            "optimizer": self.optimizer.state_dict(),
            "version": self.policy.version,
            "lr_scale": self.lr_scale,
        }
        torch.save(state, folder / OPTIMIZER)

    def load(self, folder: Path) -> None:
        """What `save(folder)` wrote; the learning rate is the config's."""
        state = torch.load(folder / OPTIMIZER, weights_only=True)
        self.policy.load(folder, version=state["version"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scale = state.get("lr_scale", 1.0)

    def logprobs(self, rollouts: Sequence[Rollout]) -> Sequence[Sequence[float]]:
        """Log-probabilities of each completion, as an update reads them in one micro-batch."""
        batch = self._layout(rollouts)
        with torch.no_grad():
            logprobs_BT = self._score(batch).logprobs_BT
        return [
            row[mask > 0].tolist() for row, mask in zip(logprobs_BT, batch.mask_BT, strict=True)
        ]

    # --- one update ---

    def _update(
        self,
        minibatch: Minibatch,
        step: int,
        fixed: Mapping[MicroBatch, _Inputs],
        tally: Tally,
        gap: SamplerGap | None,
    ) -> None:
        """Gradients of all micro-batches, then clip and step, or none of it.

        What the sampler wrote down is judged in between: no weight has moved then.
        """
        self.optimizer.zero_grad(set_to_none=True)
        update = Tally()
        with self.ranks.stopping_together():
            for micro in minibatch.micro_batches:
                check_abort()
                inputs = fixed[micro] if micro in fixed else self._inputs(micro, with_old=False)
                self._backward(inputs, minibatch, update, gap)
        if gap is not None:
            SamplerGap.of_all(self.ranks.gather([gap])).evidence.require(f"step {step}")
        update = Tally.of_all(self.ranks.gather([update]))
        parameters = self.policy.trainable().values()
        self.ranks.add_gradients(parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.grad_clip))
        for what, value in (("the loss", update.loss), ("the gradient's norm", norm)):
            if not math.isfinite(value):
                self._refuse(step, what, value, tally)
                return
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        update.rollouts, update.grad_norm, update.updates = minibatch.n_used, norm, 1
        tally.take(update)

    def _refuse(self, step: int, what: str, value: float, tally: Tally) -> None:
        """Raises Collapsed, or counts the update as left out."""
        if self.optim.nonfinite == "stop":
            remedy = "lower lr, raise optim.adam_eps, or set optim.nonfinite to skip"
            raise Collapsed(Diagnosis.not_a_number(step, what, value, remedy))
        self.optimizer.zero_grad(set_to_none=True)
        tally.skipped += 1

    def _backward(
        self, inputs: _Inputs, minibatch: Minibatch, update: Tally, gap: SamplerGap | None
    ) -> None:
        """Add a micro-batch's share of the update's loss to the gradients."""
        recomputing = self.optim.gradient_checkpointing
        mask_BT, counts_B = inputs.batch.mask_BT, inputs.counts_B
        with recompute.recomputing(self.policy.model) if recomputing else nullcontext():
            scores = self._score(inputs.batch)
            old_BT = scores.logprobs_BT.detach() if inputs.old_BT is None else inputs.old_BT
            tokens = Tokens(scores.logprobs_BT, old_BT, inputs.advantages_B, mask_BT)
            loss, term = combined_loss(
                self.objective,
                tokens,
                kl_coef=self.kl_coef,
                reference_BT=inputs.reference_BT,
                counts_B=counts_B,
                denominator=minibatch.denominators.of(self.objective.aggregation_used),
                weights_BT=self._sampler_weights(old_BT, inputs, gap),
            )
            loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            update.loss += loss.item()
            kl_BT = k3(scores.logprobs_BT, inputs.reference_BT)
            update.look_farther(_farthest(kl_BT, mask_BT, inputs.rollouts))
            kl_B = masked_mean(kl_BT, mask_BT)
            update.kl += (kl_B * counts_B).sum().item()
            entropy_B = masked_mean(scores.entropy_BT, mask_BT)
            update.entropy += (entropy_B * counts_B).sum().item()
            if term.clipped_BT is not None:
                counts_BT = mask_BT * counts_B[:, None]
                update.tokens += counts_BT.sum().item()
                update.clipped += (term.clipped_BT * counts_BT).sum().item()
                error = (tokens.ratio_BT() - 1).abs().max().item()
                update.first_ratio_error = max(update.first_ratio_error, error)

    def _sampler_weights(
        self, old_BT: Tensor, inputs: _Inputs, gap: SamplerGap | None
    ) -> Tensor | None:
        """Measure the sampler against the trainer; the tokens' weights where they are asked for.

        Truncated importance sampling (Yao et al. 2025, https://fengyao.notion.site/off-policy-rl):
        min(π_old of the trainer / π of the sampler, cap).
        """
        correcting = self.objective.sampler_correction == "tis"
        if inputs.sampler_BT is None:
            if correcting:
                raise RLLoopError.of(
                    "objective.sampler_correction",
                    "tis",
                    "needs the sampler's log-probabilities, and a rollout has none",
                    "let the sampler record them, or set it to none",
                )
            return None
        delta_BT = old_BT - inputs.sampler_BT
        if gap is not None:
            gap.add(delta_BT, inputs.batch.mask_BT, inputs.counts_B * inputs.fresh_B)
            gap.hold(inputs.rollouts, delta_BT, inputs.fresh_B, inputs.batch.mask_BT)
        if not correcting:
            return None
        cap = self.objective.sampler_correction_cap
        weights_BT = delta_BT.exp().clamp(max=cap)
        if gap is not None:
            gap.add_weights(weights_BT, cap, inputs.batch.mask_BT, inputs.counts_B)
        return weights_BT

    # --- what stays the same over the updates of a step ---

    def _fixed(self, minibatches: Sequence[Minibatch]) -> Mapping[MicroBatch, _Inputs]:
        """Old and reference log-probabilities of all rollouts, before the first weight moves.

        The trainer's own forward pass gives the old ones, in the micro-batches of the updates, so
        that the first ratio is exactly 1.
        """
        found = {}
        with self.ranks.stopping_together():
            for minibatch in minibatches:
                for micro in minibatch.micro_batches:
                    check_abort()
                    found[micro] = self._inputs(micro, with_old=True)
        return found

    def _inputs(self, micro: MicroBatch, *, with_old: bool) -> _Inputs:
        device = self.policy.device
        rollouts = [term.rollout for term in micro.terms]
        fresh = [float(rollout.version == self.policy.version) for rollout in rollouts]
        batch = self._layout(rollouts)
        with torch.no_grad():
            with self.reference.in_place():
                reference_BT = self._score(batch).logprobs_BT
            old_BT = self._score(batch).logprobs_BT if with_old else None
        return _Inputs(
            batch,
            rollouts,
            advantages_B=torch.tensor([term.advantage for term in micro.terms], device=device),
            counts_B=torch.tensor([float(term.count) for term in micro.terms], device=device),
            fresh_B=torch.tensor(fresh, device=device),
            sampler_BT=_recorded(micro, batch),
            reference_BT=reference_BT,
            old_BT=old_BT,
        )

    def _layout(self, rollouts: Sequence[Rollout]) -> Batch:
        layout = Batch.packed if self.optim.batching == "packed" else Batch.of
        return layout(rollouts, self.policy.device)

    def _score(self, batch: Batch) -> TokenScores:
        with self.policy.computing():
            return score(
                self.policy.model,
                batch,
                self.temp,
                backbone=self._backbone,
                chunk_bytes=self.optim.logit_chunk_mib * 2**20,
            )

    def _schedule(self, step: int) -> float:
        """Set and return the step's learning rate."""
        lr = self.lr * self.lr_scale * self.optim.lr_factor(step, self.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    @contextmanager
    def _whole_or_nothing(self, updates: int) -> Iterator[None]:
        """An exception inside leaves weights and moments as they were before the step."""
        kept = self._state() if updates > 1 else None
        try:
            yield
        except BaseException:
            self.optimizer.zero_grad(set_to_none=True)
            if kept is not None:
                weights, moments = kept
                for parameter, value in zip(self.policy.trainable().values(), weights, strict=True):
                    parameter.data.copy_(value)
                self.optimizer.load_state_dict(moments)
            raise

    def _state(self) -> tuple[list[Tensor], dict[str, Any]]:
        weights = [parameter.detach().clone() for parameter in self.policy.trainable().values()]
        return weights, copy.deepcopy(self.optimizer.state_dict())


def _farthest(kl_BT: Tensor, mask_BT: Tensor, rollouts: Sequence[Rollout]) -> Farthest | None:
    """None where no number is above zero, or one is NaN."""
    marked_BT = kl_BT * mask_BT
    largest = float(marked_BT.max())
    if not largest > 0:
        return None
    row, column = divmod(int(marked_BT.argmax()), kl_BT.shape[1])
    place = int(mask_BT[row, :column].sum())
    return Farthest(largest, rollouts[row].question_id, rollouts[row].sample, place)


def _recorded(micro: MicroBatch, batch: Batch) -> Tensor | None:
    """The sampler's log-probabilities, shape (B, T), 0 outside the mask."""
    recorded = [term.rollout.logprobs for term in micro.terms]
    if any(
        len(values) != len(term.rollout.completion_ids)
        for values, term in zip(recorded, micro.terms, strict=True)
    ):
        return None
    values_N = torch.tensor([value for values in recorded for value in values])
    blank_BT = torch.zeros_like(batch.mask_BT)
    return blank_BT.masked_scatter(batch.mask_BT > 0, values_N.to(blank_BT.device))
