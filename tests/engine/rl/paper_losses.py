"""Each objective written once more from its paper's equation: plain loops over plain numbers.

Independent of the project's losses on purpose: shares no line with them. Every function returns
the loss (the negated objective) of a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sequence_:  # noqa: N801 - Sequence is taken
    """One rollout: per-token log-probabilities of its own length, and its advantage."""

    now: Tensor
    old: Tensor
    reference: Tensor
    advantage: float


Batch = Sequence[Sequence_]


def _k3(s: Sequence_, t: int) -> Tensor:
    ratio = torch.exp(s.reference[t] - s.now[t])
    return ratio - (s.reference[t] - s.now[t]) - 1


def _surrogate(ratio: Tensor, advantage: float, low: float, high: float) -> Tensor:
    clipped = ratio
    if ratio.item() < 1 - low:
        clipped = torch.full_like(ratio, 1 - low)
    if ratio.item() > 1 + high:
        clipped = torch.full_like(ratio, 1 + high)
    one, two = ratio * advantage, clipped * advantage
    return one if one.item() <= two.item() else two


def reinforce_kl(batch: Batch, beta: float) -> Tensor:
    """(1/N) Σ_i (1/|o_i|) Σ_t −A_i log π + β·K3."""
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        inner = torch.zeros((), dtype=torch.float64)
        for t in range(len(s.now)):
            inner = inner - s.advantage * s.now[t] + beta * _k3(s, t)
        total = total + inner / len(s.now)
    return total / len(batch)


def grpo(batch: Batch, beta: float) -> Tensor:
    """DeepSeekMath eq. 3, ε = 0.2."""
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        inner = torch.zeros((), dtype=torch.float64)
        for t in range(len(s.now)):
            ratio = torch.exp(s.now[t]) / torch.exp(s.old[t])
            inner = inner + _surrogate(ratio, s.advantage, 0.2, 0.2) - beta * _k3(s, t)
        total = total + inner / len(s.now)
    return -total / len(batch)


def dr_grpo(batch: Batch, beta: float) -> Tensor:
    """Dr. GRPO: no 1/|o_i|; divided by the number of rollouts and the generation budget."""
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        for t in range(len(s.now)):
            ratio = torch.exp(s.now[t]) / torch.exp(s.old[t])
            total = total + _surrogate(ratio, s.advantage, 0.2, 0.2) - beta * _k3(s, t)
    return -total / (len(batch) * BUDGET)


def rloo(batch: Batch, beta: float) -> Tensor:
    """The completion is one action: −A_i log π(y_i), the KL its sum over tokens."""
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        kl = torch.stack([_k3(s, t) for t in range(len(s.now))]).sum()
        total = total - s.advantage * s.now.sum() + beta * kl
    return total / len(batch)


def dapo(batch: Batch, beta: float) -> Tensor:
    """DAPO eq. 8: 1/Σ|o_i| over all tokens, ε 0.2 below and 0.28 above."""
    total = torch.zeros((), dtype=torch.float64)
    tokens = 0
    for s in batch:
        for t in range(len(s.now)):
            ratio = torch.exp(s.now[t]) / torch.exp(s.old[t])
            total = total + _surrogate(ratio, s.advantage, 0.2, 0.28) - beta * _k3(s, t)
            tokens += 1
    return -total / tokens


def gspo(batch: Batch, beta: float) -> Tensor:
    """GSPO eq. 5 with s_i of eq. 7, ε 3e-4 below and 4e-4 above; KL as in GRPO."""
    total = torch.zeros((), dtype=torch.float64)
    for s in batch:
        likelihood = torch.exp(s.now.sum()) / torch.exp(s.old.sum())
        ratio = likelihood ** (1 / len(s.now))
        kl = torch.stack([_k3(s, t) for t in range(len(s.now))]).sum() / len(s.now)
        total = total + _surrogate(ratio, s.advantage, 3e-4, 4e-4) - beta * kl
    return -total / len(batch)


def cispo(batch: Batch, beta: float) -> Tensor:
    """MiniMax-M1 eq. 4 and 5: the stop-gradient weight min(r, 5) on A log π."""
    total = torch.zeros((), dtype=torch.float64)
    tokens = 0
    for s in batch:
        for t in range(len(s.now)):
            weight = min(torch.exp(s.now[t] - s.old[t]).item(), 5.0)
            total = total + weight * s.advantage * s.now[t] - beta * _k3(s, t)
            tokens += 1
    return -total / tokens


BUDGET = 16
"""Generation budget of dr_grpo's constant."""
PAPERS: Mapping[str, Callable[[Batch, float], Tensor]] = {
    "reinforce_kl": reinforce_kl,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "dapo": dapo,
    "gspo": gspo,
    "cispo": cispo,
}
