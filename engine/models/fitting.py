"""Does a model folder hold the model, and does an adapter fit it? By names and shapes: no weight of
the base is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.contract.errors import ConfigProblem, RLLoopError
from engine.models import lora
from engine.models.policy import causal_model


class Fitted(NamedTuple):
    """What came of it."""

    problems: Sequence[ConfigProblem] = ()
    model: Any = None
    """With its adapter, on the device "meta"; None without an adapter."""


def tried(base: str, adapter: str | None) -> Fitted:
    """A folder, or a hub id that is on this machine."""
    try:
        model = causal_model(base, device="meta")
        return Fitted() if adapter is None else Fitted((), lora.attach_folder(model, adapter))
    except RLLoopError as error:
        return Fitted(error.problems)
