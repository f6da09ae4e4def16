"""Which rollouts an optimizer update is made of, and in which pieces they pass through the model.

Torch-free: counts and cuts, computes no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.rl.objective import Aggregation, ObjectiveConfig
from engine.contract.rl.optim import OptimConfig
from engine.rl.advantages import USED, has_signal, lost
from engine.sampling.base import Groups, Rollout

_Row = tuple[Rollout, float]
"""A rollout with its advantage."""


@dataclass(frozen=True)
class Term:
    """One addend of the loss: a rollout with its advantage, and how often the step has it."""

    rollout: Rollout
    advantage: float
    count: int

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.rollout.prompt_ids) + len(self.rollout.completion_ids)


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Terms that pass through the model together."""

    terms: Sequence[Term]


@dataclass(frozen=True)
class Denominators:
    """Sizes of an update's whole batch: what summed token losses are divided by.

    Counted before the first micro-batch, so that each adds its share of the whole.
    """

    sequences: int
    """Rollouts that count, whether or not they have a loss."""
    tokens: int
    """Their completion tokens."""
    max_tokens: int
    """Longest possible completion: dr_grpo's constant."""

    def of(self, how: Aggregation) -> int:
        """The number to divide by.

        >>> Denominators(sequences=4, tokens=10, max_tokens=8).of("constant")
        32
        """
        if how == "token_mean":
            return self.tokens
        if how == "constant":
            return self.sequences * self.max_tokens
        return self.sequences


@dataclass(frozen=True)
class Minibatch:
    """What one optimizer update looks at."""

    micro_batches: Sequence[MicroBatch]
    """Of this rank."""
    n_used: int
    """Rollouts with a loss, be it their KL term alone; over all ranks."""
    denominators: Denominators


_Groups = Sequence[Sequence[_Row]]
Mine = Callable[[_Groups], _Groups]
"""Of all groups those that this rank learns."""


def plan(
    groups: Groups,
    advantages_PG: Sequence[Sequence[float]],
    objective: ObjectiveConfig,
    optim: OptimConfig,
    *,
    kl_coef: float,
    micro_batch: int,
    max_new_tokens: int,
    mine: Mine = list,
) -> list[Minibatch]:
    """A step's prompts split into `objective.minibatches` parts; parts without a loss left out.

    A rollout of advantage 0 has its KL term, in every loss but reinforce_kl: the middle one of a
    group that ranks, and every one of a tied group that stays in the batch.
    """
    penalised = objective.penalises(kl_coef)
    rows_PG = [
        list(zip(group, advantages_G, strict=True))
        for group, advantages_G in zip(groups, advantages_PG, strict=True)
        if objective.zero_signal_used == "keep" or has_signal(advantages_G)
    ]
    parts = (rows_PG[start :: objective.minibatches] for start in range(objective.minibatches))
    found = (
        _minibatch(
            part, objective, optim, micro_batch, max_new_tokens, penalised=penalised, mine=mine
        )
        for part in parts
    )
    return [minibatch for minibatch in found if minibatch.n_used]


def _minibatch(
    rows_PG: _Groups,
    objective: ObjectiveConfig,
    optim: OptimConfig,
    micro_batch: int,
    max_new_tokens: int,
    *,
    penalised: bool,
    mine: Mine,
) -> Minibatch:
    used_PG = [
        [row for row in rows_G if _used(row, objective, penalised=penalised)] for rows_G in rows_PG
    ]
    used_PG = [used_G for used_G in used_PG if used_G]
    used = [row for used_G in used_PG for row in used_G]
    terms = _terms(
        [row for used_G in mine(used_PG) for row in used_G],
        apart=objective.sampler_correction != "none",
    )
    # reinforce_kl divides by the rollouts used, the others by all that were sampled.
    rows = [row for rows_G in rows_PG for row in rows_G]
    counted = used if objective.loss == "reinforce_kl" else rows
    tokens = sum(len(r.completion_ids) for r, _ in counted if not lost(r, objective))
    pack_tokens = optim.pack_tokens if optim.batching == "packed" else None
    return Minibatch(
        micro_batches=_micro_batches(terms, micro_batch, pack_tokens),
        n_used=len(used),
        denominators=Denominators(len(counted), tokens, max_new_tokens),
    )


def _used(row: _Row, objective: ObjectiveConfig, *, penalised: bool) -> bool:
    """An empty completion has no token whose probability a gradient could move."""
    rollout, advantage = row
    if not rollout.completion_ids or lost(rollout, objective):
        return False
    return penalised or abs(advantage) >= USED


def _terms(rows: Iterable[_Row], *, apart: bool) -> list[Term]:
    """Equal completions of a prompt are computed once and counted.

    A small model repeats itself: every second completion of the demo is its sibling's copy.
    Those of another version of the weights stand for themselves. With `apart` they must also have
    been sampled with the same log-probabilities, which weigh them.
    """
    found: dict[tuple[Any, ...], Term] = {}
    for rollout, advantage in rows:
        sampled = rollout.logprobs if apart else ()
        name = (rollout.prompt_ids, rollout.completion_ids, advantage, sampled, rollout.version)
        count = found[name].count if name in found else 0
        found[name] = Term(rollout, advantage, count + 1)
    return list(found.values())


def _micro_batches(
    terms: Sequence[Term], size: int, pack_tokens: int | None
) -> Sequence[MicroBatch]:
    """Rollouts of like length together, so that little is padding; packs no larger than asked."""
    ordered = sorted(terms, key=lambda term: term.length)
    if pack_tokens is None:
        return [MicroBatch(ordered[i : i + size]) for i in range(0, len(ordered), size)]
    packs: list[list[Term]] = []
    tokens = 0
    for term in ordered:
        if not packs or len(packs[-1]) == size or tokens + term.length > pack_tokens:
            packs.append([])
            tokens = 0
        packs[-1].append(term)
        tokens += term.length
    return [MicroBatch(pack) for pack in packs]
