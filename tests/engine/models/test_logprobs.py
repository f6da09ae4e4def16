"""Log-probabilities piece by piece, and what they cost in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Gemma2Config, Gemma2ForCausalLM

from engine.contract.kinds.rl_run import RLRunConfig
from engine.models import tiny
from engine.models.logprobs import backbone_and_head, log_softmax, token_logprobs
from engine.rl.parts import build_policy
from engine.rl.scoring import Batch, score
from engine.sampling.base import Rollout

N, H, V = 40, 8, 500
PIECE = 4 * V * 7
"""Bytes of seven positions."""


def inputs() -> tuple[Tensor, nn.Linear, Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(H, V, bias=False)
    return torch.randn(N, H, requires_grad=True), head, torch.randint(V, (N,))


def gradients(chunk_bytes: int) -> list[Tensor]:
    hidden, head, targets = inputs()
    found = token_logprobs(hidden, head, targets, 0.7, chunk_bytes)
    (found.logprobs * torch.linspace(-1, 1, N)).sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert head.weight.grad is not None
    return [found.logprobs.detach(), found.entropy, hidden.grad, head.weight.grad]


@pytest.mark.requirement("EX-01")
def test_pieces_give_the_same_as_the_whole() -> None:
    """Log-probabilities, entropies and both gradients, whatever the size of a piece."""
    whole = gradients(4 * V * N)

    for chunk_bytes in (1, PIECE, 4 * V * (N - 1)):
        for piece, expected in zip(gradients(chunk_bytes), whole, strict=True):
            assert torch.allclose(piece, expected, atol=2e-6, rtol=1e-5)


def test_pieces_equal_the_textbook_at_the_temperature() -> None:
    """log softmax(z / T) by gather, −Σ p log p; temperature 0 reads as 1."""
    hidden, head, targets = inputs()
    for temp, divisor in ((0.7, 0.7), (0.0, 1.0)):
        log_p = torch.log_softmax(head(hidden).double() / divisor, -1)
        found = token_logprobs(hidden, head, targets, temp, PIECE)

        assert torch.allclose(found.logprobs.double(), log_p[range(N), targets], atol=1e-5)
        assert torch.allclose(found.entropy.double(), -(log_p.exp() * log_p).sum(-1), atol=1e-5)
        assert torch.allclose(log_softmax(head(hidden), temp).double(), log_p, atol=1e-5)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that any operation makes, forward and backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        sizes = [t.numel() * t.element_size() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.bytes = max([self.bytes, *sizes])
        return result


@pytest.mark.requirement("EX-01")
@pytest.mark.parametrize("piece", [PIECE, 4 * V * N])
def test_no_tensor_as_wide_as_the_vocabulary_is_larger_than_a_piece(piece: int) -> None:
    """Neither in the forward nor in the backward pass, where the pieces are computed again."""
    hidden, head, targets = inputs()
    weights = torch.linspace(-1, 1, N)
    with Largest() as largest:
        found = token_logprobs(hidden, head, targets, 0.7, piece)
        (found.logprobs * weights).sum().backward()  # type: ignore[no-untyped-call]

    # The head's own weight and gradient are V × H.
    assert largest.bytes <= max(piece, 4 * V * H)
    assert largest.bytes >= piece // 2


@pytest.mark.requirement("EX-01")
def test_the_body_is_cut_from_its_head_under_an_adapter_too(base_folder: Path) -> None:
    """What LoRA adds lies inside the body's layers."""
    config = RLRunConfig(base=str(base_folder), tuning="lora", lora_rank=4)
    policy = build_policy(config)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.05)
    rollout = Rollout("q", 0, (1, 2), (3, 4, 12), (), "", False, 0)
    batch = Batch.of([rollout], torch.device("cpu"))

    cut = backbone_and_head(policy.model)
    assert cut is not None
    with torch.no_grad():
        whole, pieces = (
            score(policy.model, batch, 0.8, backbone=way, chunk_bytes=1).logprobs_BT
            for way in (None, cut)
        )

    assert torch.allclose(whole, pieces, atol=1e-6)


def test_a_model_that_reshapes_its_logits_is_read_as_a_whole() -> None:
    """Gemma 2 caps its logits behind the head: that is found out, not known."""
    config = Gemma2Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.5,
    )
    torch.manual_seed(0)

    assert backbone_and_head(Gemma2ForCausalLM(config)) is None
    assert backbone_and_head(tiny.build_model(0)) is not None
