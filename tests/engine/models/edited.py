"""Model folders with other weights than their config.json and their base say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.models import tiny
from tests.engine.models import zoo

Weights = dict[str, Tensor]


def edit(folder: Path, change: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    changed = change(load_file(path))
    save_file({name: w.clone() for name, w in changed.items()}, path, {"format": "pt"})


def edited(name: str, folder: Path, change: Callable[[Weights], Weights]) -> str:
    """A folder of the zoo with other weights."""
    edit(zoo.saved(name, folder, tiny.build_tokenizer()), change)
    return str(folder)


def with_number(where: str, value: float) -> Callable[[Weights], Weights]:
    def change(weights: Weights) -> Weights:
        weights[where].view(-1)[3] = value
        return weights

    return change


def with_layer(prefix: str) -> Callable[[Weights], Weights]:
    """One layer more, as in a folder whose config.json counts too few."""

    def change(weights: Weights) -> Weights:
        more = {n.replace(f"{prefix}1.", f"{prefix}7."): w for n, w in weights.items()}
        return weights | more

    return change
