"""A causal model's forward pass, with the inputs that its architecture names.

Some read positions from the attention mask, some from their state, some cannot leave out logits.
"""

from __future__ import annotations

import inspect
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from engine.models import lora


def forward(model: Any, **inputs: Any) -> Tensor:
    """Logits, without the inputs that this architecture does not name, and without those that are
    None.
    """
    given = {n: value for n, value in inputs.items() if value is not None and takes(model, n)}
    logits: Tensor = model(**given).logits
    return logits


def takes(model: Any, name: str) -> bool:
    """Whether a model's forward names an input; one that names none takes them all."""
    named = _named(model)
    return name in named or "input_ids" not in named


_names: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()


def _named(model: Any) -> frozenset[str]:
    causal = model.get_base_model() if lora.adapted(model) else model
    if causal not in _names:
        _names[causal] = frozenset(inspect.signature(causal.forward).parameters)
    return _names[causal]
