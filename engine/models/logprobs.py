"""The one temperature convention of sampler, reference and trainer, and the memory it costs.

log π(token) = (z_token − logsumexp z) with z = logits / temp in fp32. Where the fp32 logits of all
positions would be larger than a limit, they are computed piece by piece and once more in the
backward pass. Shapes: N positions, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from engine.models import lora

CHUNK_BYTES = 64 * 2**20
"""Default limit of one piece of fp32 logits."""
_FP32 = 4


class TokenLogprobs(NamedTuple):
    """Of each position the target's log-probability and the whole distribution's entropy."""

    logprobs: Tensor
    entropy: Tensor
    """Without gradient."""


def log_softmax(logits: Tensor, temp: float) -> Tensor:
    """fp32 log-probabilities at a sampling temperature; 0 (greedy) reads them at 1."""
    return torch.log_softmax(_scaled(logits, temp), dim=-1)


def token_logprobs(
    hidden: Tensor,
    head: torch.nn.Module,
    targets: Tensor,
    temp: float,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenLogprobs:
    """log π(target) for hidden states (…, H) and targets (…), `head` giving logits (…, V).

    No tensor with a vocabulary axis is larger than `chunk_bytes` in fp32 (or one position, where
    that alone is larger).
    """
    rows = rows_of(head, chunk_bytes)
    if targets.numel() <= rows:
        return _whole(head(hidden), targets, temp)
    pieces = [
        # The pieces draw no random numbers, so there is no state to keep for the second pass.
        checkpoint(
            _piece, head, hidden_n, targets_n, temp, use_reentrant=False, preserve_rng_state=False
        )
        for hidden_n, targets_n in zip(
            torch.split(hidden.flatten(0, -2), rows),
            torch.split(targets.flatten(), rows),
            strict=True,
        )
    ]
    return TokenLogprobs(
        *(torch.cat(parts).view(targets.shape) for parts in zip(*pieces, strict=True))
    )


def rows_of(head: Any, chunk_bytes: int) -> int:
    """Positions whose fp32 logits fit into `chunk_bytes`; at least one."""
    vocabulary: int = head.weight.shape[0]
    return max(1, chunk_bytes // (_FP32 * vocabulary))


def full_logprobs(logits: Tensor, targets: Tensor, temp: float) -> TokenLogprobs:
    """The same from logits (…, V) that are there already."""
    return _whole(logits, targets, temp)


def _whole(logits: Tensor, targets: Tensor, temp: float) -> TokenLogprobs:
    log_p = log_softmax(logits, temp)
    logprobs = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropy = -(log_p.exp() * log_p).sum(-1)
    return TokenLogprobs(logprobs, entropy)


def _piece(
    head: torch.nn.Module, hidden_nH: Tensor, targets_n: Tensor, temp: float
) -> TokenLogprobs:
    """By gather − logsumexp, which keeps nothing of the vocabulary's width but the logits."""
    logits_nV = _scaled(head(hidden_nH), temp)
    total_n = torch.logsumexp(logits_nV, -1)
    logprobs_n = logits_nV.gather(-1, targets_n[:, None]).squeeze(-1) - total_n
    with torch.no_grad():
        mean_n = (torch.exp(logits_nV - total_n[:, None]).mul_(logits_nV)).sum(-1)
    return TokenLogprobs(logprobs_n, total_n.detach() - mean_n)


def _scaled(logits: Tensor, temp: float) -> Tensor:
    return logits.float() / (temp or 1.0)


class BackboneAndHead(NamedTuple):
    """A causal model cut in front of its output layer."""

    body: torch.nn.Module
    """Ids → hidden states."""
    head: torch.nn.Module
    """Hidden states → logits."""


def backbone_and_head(model: Any) -> BackboneAndHead | None:
    """Body and head of a causal model, or None where logits are more than head(body(ids)).

    Some families scale or cap their logits behind the head; that is tried, not looked up.
    """
    causal = model.get_base_model() if lora.adapted(model) else model
    body, head = causal.base_model, causal.get_output_embeddings()
    if body is causal or getattr(head, "weight", None) is None:
        return None
    # Several ids: that of the padding may embed to zero, where a cap or a scale does not show.
    device = next(model.parameters()).device
    ids = torch.arange(8, device=device)[None, :] % head.weight.shape[0]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        try:
            cut = head(body(input_ids=ids, use_cache=False).last_hidden_state)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # a body of another make
            return None
    return BackboneAndHead(body, head) if torch.equal(whole, cut) else None
