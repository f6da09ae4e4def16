"""A model's folder against the model that Transformers makes of it: nothing of the one may be left
over, nothing of the other made up.

Transformers goes on with random numbers where weights are missing, drops what its config does not
ask for, and reads weights of few bits as something that no run here can train. Knows no kind; each
answers in its own words what to do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from engine.contract.model_folder import packed_by_config, packed_in, predicted_layers

_NAMED = 3
"""Tensors of a long list that are written out."""


def few_bits(base: str) -> str | None:
    """How the weights of a folder or hub id are packed; None for plain ones, as far as is known
    before they are loaded.

    Raises what Transformers raises for no model.
    """
    config: Any = AutoConfig.from_pretrained(base)
    packed = packed_by_config(config.to_dict())
    return packed_in(Path(base)) if packed is None and Path(base).is_dir() else packed


def saved_type(base: str) -> torch.dtype | None:
    """In which a folder or hub id has its weights, as its config says it.

    Raises what Transformers raises for no model.
    """
    told: Any = AutoConfig.from_pretrained(base).dtype
    return told if isinstance(told, torch.dtype) else None


def misfit(model: Any, loading: Mapping[str, Any]) -> str | None:
    """What `output_loading_info` tells of a model that is not the one in its folder."""
    if loading["missing_keys"]:
        return f"it has no weights for {_first(loading['missing_keys'])}"
    if loading["mismatched_keys"]:
        name, stands, asked = min(loading["mismatched_keys"])
        return f"{name} is {_shape(stands)}, and its config.json asks for {_shape(asked)}"
    left_over = sorted(_left_over(model, loading["unexpected_keys"]))
    if left_over:
        return f"its config.json does not count {len(left_over)} tensors: {_first(left_over)}"
    return None


def _left_over(model: Any, unexpected: Collection[str]) -> Iterator[str]:
    """Tensors that belong to a model of this architecture, and to this one not.

    What belongs to none of its layers (a value head, a vision tower, a mask that older versions
    saved) and layers that predict further tokens are of no use to a policy.
    """
    if not unexpected:
        return
    state = model.state_dict()
    known = {_NUMBER.sub("N", name) for name in state}
    layers = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    ahead = predicted_layers(model.config.to_dict())
    for name in unexpected:
        numbers = [int(number) for number in _NUMBER.findall(name)]
        if numbers and numbers[0] in ahead:
            continue
        if _NUMBER.sub("N", name) in known or name.rpartition(".")[0] in layers:
            yield name


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def _first(names: Collection[str]) -> str:
    shown = sorted(names)[:_NAMED]
    return ", ".join(shown) + (", …" if len(names) > _NAMED else "")


def _shape(size: Any) -> str:
    return " × ".join(map(str, size))
