"""Weights that are no numbers: found when a model is loaded, with the tensor that holds them.

One NaN in a base makes every reward zero and every loss nothing, and what follows is blamed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """`NaN in model.norm.weight (and 2 more tensors)`; None where every number is one.

    For a `state_dict`: parameters and persistent buffers.
    """
    found = {name: word for name, tensor in tensors.items() for word in [_word(tensor)] if word}
    if not found:
        return None
    name = min(found)
    others = f" (and {len(found) - 1} more tensors)" if len(found) > 1 else ""
    return f"{found[name]} in {name}{others}"


def _word(tensor: Tensor) -> str | None:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return None
    if tensor.device.type == "meta":
        return None  # its numbers are somewhere else
    if tensor.is_complex() or tensor.element_size() == 1:
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor.float()
    # The least and the most, because asking each number makes a copy of the tensor.
    ends = torch.stack(torch.aminmax(tensor))
    if torch.isnan(ends).any():
        return "NaN"
    return "infinity" if torch.isinf(ends).any() else None
