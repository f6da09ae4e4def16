"""Two readings of the same texts side by side: a model and what was saved of it, an adapter on and
off. Knows no file and no run.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.models.precision import Precision

Read = Callable[[Any], Sequence[Tensor]]
"""A model's logits of some texts, [T, V] each."""


def unequal(one: Any, other: Any) -> Sequence[str]:
    """Names of the parameters and persistent buffers that two models do not have alike, bit by bit,
    in the order of the model; an adapter's are among them.
    """
    here, there = one.state_dict(), other.state_dict()
    return [
        name
        for name in {**here, **there}
        if name not in here or name not in there or not _equal(here[name], there[name])
    ]


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return bool(a == b)  # what a module keeps beside its tensors
    return a is b or (a.dtype == b.dtype and torch.equal(a, b.to(a.device)))


def expected_gap(wanted_TV: Tensor, found_TV: Tensor) -> Tensor:
    """How far log-probabilities are from those wanted, in nats, [T]: the mean over what is expected
    there. Of what is not expected bfloat16 rounds wide logits by any amount.
    """
    return (wanted_TV.exp() * (found_TV - wanted_TV).abs()).sum(-1)


def apart(
    one: Sequence[Tensor], other: Sequence[Tensor], *, precision: Precision = "fp32"
) -> float:
    """Furthest log-probability of the same token at the same place, in nats; NaN where one is.

    In bfloat16 the furthest mean over the tokens that `one` expects at a place.
    """
    furthest = 0.0
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape:
            return math.inf
        here, there = (x.float().log_softmax(-1) for x in (a, b.to(a.device)))
        gaps = (there - here).abs() if precision == "fp32" else expected_gap(here, there)
        found = gaps.amax().item()
        if math.isnan(found):
            return found
        furthest = max(furthest, found)
    return furthest


def base_of(model: Any) -> Any:
    """The base below an adapter: modules of its own on the same tensors, so that it costs nothing
    and an adapter put on it leaves the model as it is.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).unload()


def with_and_without(model: Any, read: Read) -> float | None:
    """How far an adapter moves log-probabilities; None while its tensors are zero."""
    if not _moves(dict(model.named_parameters())):
        return None
    on = read(model)
    with model.disable_adapter():
        return apart(on, read(model))


def _moves(tensors: Mapping[str, Tensor]) -> bool:
    """Whether any of an adapter's products of two matrices is not zero."""
    for name, tensor in tensors.items():
        for second, first in (("lora_B", "lora_A"), ("lora_embedding_B", "lora_embedding_A")):
            other = tensors.get(name.replace(second, first)) if f".{second}." in name else None
            if other is not None and bool(tensor.any()) and bool(other.any()):
                return True
    return False


def release() -> None:
    """Give the memory of models that nobody holds any more back."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
