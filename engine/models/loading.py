"""What came of loading a model folder: quantized, half of it, more than it says, or no numbers.

Transformers goes on after each of them. Knows no kind; who loads names the setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.contract.errors import NightlaneError
from engine.contract.quantized import REMEDY, quantization_in

Unread = Callable[[str, str], None]
"""`(code, text)`: what is said of weights that nothing reads."""
UNREAD_WEIGHTS = "UNREAD_WEIGHTS"

_SHOWN = 3
_NUMBERED = re.compile(r"^(.*?\.)(\d+)\.")
_LOOKING_AHEAD = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
"""Layers behind the last one that predict further tokens, which Transformers leaves out."""


class UnfitWeightsError(NightlaneError):
    """A folder whose weights no run can begin with."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; {remedy}")


def require_whole_numbers(base: str) -> None:
    """Raises UnfitWeightsError for a quantized folder or hub id, before its weights are read."""
    from transformers import AutoConfig  # noqa: PLC0415 - seconds to import

    found = quantization_in(AutoConfig.from_pretrained(base).to_dict())
    if found is not None:
        problem = f"it is quantized ({found}), and a run trains weights of 16 or 32 bit"
        raise UnfitWeightsError(problem, REMEDY)


def require_complete(model: Any, loading: Mapping[str, Any], say: Unread) -> None:
    """Raises UnfitWeightsError unless every tensor of the model came from the folder, and every
    layer of the folder is one of the model's. What else it holds and nothing reads is said.
    """
    missing, unread = loading["missing_keys"], loading["unexpected_keys"]
    if missing:
        # Transformers would go on with random numbers in their place.
        raise UnfitWeightsError(f"it has no weights for {first(missing)}", "save it again")
    beyond = list(_uncounted(model, unread))
    if beyond:
        raise UnfitWeightsError(
            f"it holds weights of layers that its config.json does not count: {first(beyond)}",
            "correct the number of layers in config.json, or save the model again",
        )
    if unread:
        text = f"{len(unread)} tensors of the model's folder are read by nothing: {first(unread)}"
        say(UNREAD_WEIGHTS, text)


def _uncounted(model: Any, unread: Collection[str]) -> Iterator[str]:
    """Names in a stack of layers that the model has too, under a number that it does not have."""
    config = model.config.get_text_config(decoder=True)
    if any(getattr(config, name, None) for name in _LOOKING_AHEAD):
        return
    stacks: dict[str, set[str]] = {}
    for name in model.state_dict():
        if found := _NUMBERED.match(name):
            stacks.setdefault(found[1], set()).add(found[2])
    for name in unread:
        found = _NUMBERED.match(name)
        if found and found[1] in stacks and found[2] not in stacks[found[1]]:
            yield name


def require_finite(model: Any) -> None:
    """Raises UnfitWeightsError that names the first tensor with NaN or infinite numbers."""
    for name, tensor in model.named_parameters():
        wrong = _not_finite(tensor)
        if wrong:
            raise UnfitWeightsError(f"its tensor {name} holds {wrong}", "save the model again")
    for name, buffer in model.named_buffers():
        # An expert or a position may be switched off by an infinite one.
        if buffer.is_floating_point() and bool(torch.isnan(buffer).any()):
            raise UnfitWeightsError(f"its tensor {name} holds NaN", "save the model again")


def _not_finite(tensor: Tensor) -> str | None:
    """By the least and the largest number, which are NaN where any is: no mask of its size."""
    if not tensor.numel() or not tensor.is_floating_point():
        return None
    low, high = (float(one) for one in torch.aminmax(tensor.detach()))
    if low != low:  # noqa: PLR0124 - NaN
        return "NaN"
    return "infinite numbers" if {low, high} & {float("inf"), float("-inf")} else None


def first(names: Collection[str]) -> str:
    """The first of them by name, and how many more."""
    shown = sorted(names)[:_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
