"""A model's weights as a server takes them: adapters merged in, under the names of a saved folder.

One tensor at a time, so that a merge never needs the memory of a second model; and by swapping
tensors, never by adding and subtracting, so that the trainer's own weights stay as they are to the
bit. Knows no server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, revert_weight_conversion

from engine.models import lora

Named = Iterator[tuple[str, Tensor]]


class MergedWeights:
    """`for name, tensor in MergedWeights(model)`: what `save_pretrained` of the merged model would
    write, shared weights once. Each `iter` is a fresh pass over the weights of now.

    `dtype`: what floating-point weights are rounded to, after the merge; None leaves them.
    """

    def __init__(self, model: Any, dtype: torch.dtype | None = None) -> None:
        self._model = model
        self._dtype = dtype

    def __iter__(self) -> Named:
        for name, tensor in _as_saved(self._whole, self._merged()):
            yield name, self._rounded(tensor)

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor."""
        return max(self._bytes(tensor) for tensor in self._whole.state_dict().values())

    @property
    def bytes(self) -> int:
        """Of all of them; adapters, which go into the others, are counted too."""
        return sum(self._bytes(parameter) for parameter in self._whole.parameters())

    # --- inside ---

    @property
    def _whole(self) -> Any:
        """The Transformers model, below an adapter's wrapping."""
        return self._model.get_base_model() if lora.adapted(self._model) else self._model

    def _merged(self) -> Named:
        """By the names in memory. A layer is merged once for all of its parameters."""
        whole = self._whole
        owners = {id(p): layer for layer in _layers(whole) for p in _own(layer).values()}
        left_out = set(whole._keys_to_ignore_on_save or ())  # noqa: SLF001 - its own class sets it
        seen: set[int] = set()
        held: tuple[LoraLayer | None, Mapping[int, Tensor]] = (None, {})
        for name, parameter in whole.state_dict(keep_vars=True).items():
            key = _name(name)
            if key is None or key in left_out or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            layer = owners.get(id(parameter))
            if layer is not None and layer is not held[0]:
                held = (layer, _merge(layer))
            yield key, parameter.detach() if layer is None else held[1][id(parameter)]

    def _rounded(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._dtype) if tensor.is_floating_point() and self._dtype else tensor

    def _bytes(self, tensor: Tensor) -> int:
        size = tensor.element_size()
        if tensor.is_floating_point() and self._dtype is not None:
            size = self._dtype.itemsize
        return tensor.numel() * size


def _layers(whole: nn.Module) -> Iterator[LoraLayer]:
    yield from (module for module in whole.modules() if isinstance(module, LoraLayer))


def _own(layer: Any) -> dict[str, nn.Parameter]:
    """What the layer adapts, by name: a weight and its bias, or one bare parameter."""
    found = dict(layer.get_base_layer().named_parameters(recurse=False))
    only = getattr(layer, "parameter_name", None)
    return found if only is None else {only: found[only]}


@torch.no_grad()
def _merge(layer: Any) -> dict[int, Tensor]:
    """New tensors by the identity of the parameters that they would replace.

    PEFT's own merge, into a copy (`safe_merge`); afterwards the layer is as it was.
    Raises ValueError where the result is no number.
    """
    own = _own(layer)
    before = {name: parameter.data for name, parameter in own.items()}
    caches = dict(layer._caches)  # noqa: SLF001 - DoRA leaves the norms of an unmerge there
    try:
        layer.merge(safe_merge=True)
        return {id(parameter): parameter.data for parameter in own.values()}
    finally:
        for name, parameter in own.items():
            parameter.data = before[name]
        layer.merged_adapters.clear()
        layer._caches.clear()  # noqa: SLF001 - as above
        layer._caches.update(caches)  # noqa: SLF001


def _name(name: str) -> str | None:
    """In the plain model, of an entry of the adapted one; None for the adapter's own.

    >>> _name("model.layers.0.q_proj.base_layer.weight"), _name("q_proj.lora_A.default.weight")
    ('model.layers.0.q_proj.weight', None)
    """
    parts = name.split(".")
    if not set(parts).isdisjoint(LoraLayer.adapter_layer_names):
        return None
    return ".".join(part for part in parts if part != "base_layer")


def _as_saved(whole: Any, weights: Named) -> Named:
    """Under the names, and in the pieces, of a folder: one model class may hold them otherwise.

    Where pieces are put together they are of one layer; layers are not mixed.
    """
    conversions = getattr(whole, "_weight_conversions", None)
    if conversions is None:
        conversions = get_model_conversion_mapping(whole, add_legacy=False)
    together = any(isinstance(one, WeightConverter) for one in conversions)
    for _, group in groupby(weights, key=lambda one: _layer(one[0]) if together else one[0]):
        yield from revert_weight_conversion(whole, dict(group)).items()


def _layer(name: str) -> str:
    """What stands in front of the parameter's own name in its layer.

    >>> _layer("model.layers.3.mlp.experts.7.w1"), _layer("model.norm.weight")
    ('model.layers.3', 'model.norm.weight')
    """
    parts = name.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdecimal()), len(parts) - 1)
    return ".".join(parts[: number + 1])
