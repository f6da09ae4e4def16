"""What the weights of a model's folder are stored as: read from the headers of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open

GROUPS = (128, 64, 32)
"""Weights that may share a scale, the fewest scales first."""
_PLAIN = frozenset({"F32", "F16", "BF16"})


class Stored(NamedTuple):
    """One tensor."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors calls it: BF16, I8."""

    @property
    def is_matrix(self) -> bool:
        """Norms and biases are small, and no format touches them."""
        return len(self.shape) >= 2

    @property
    def is_plain(self) -> bool:
        """Not in few bits."""
        return self.dtype in _PLAIN


def stored(folder: Path) -> Mapping[str, Stored]:
    """Every tensor of a model's folder by name."""
    return {name: one for path in sorted(folder.glob("*.safetensors")) for name, one in _in(path)}


def _in(path: Path) -> Iterator[tuple[str, Stored]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            part = file.get_slice(name)
            yield name, Stored(tuple(part.get_shape()), str(part.get_dtype()))


def left_out(before: Mapping[str, Stored], after: Mapping[str, Stored]) -> list[str]:
    """Matrices that a format has as they were."""
    matrices = [name for name, one in before.items() if one.is_matrix]
    return [name for name in matrices if name in after and after[name].is_plain]


def share_left(before: Mapping[str, Stored], left: Sequence[str]) -> float:
    """Of the weights in matrices."""
    sizes = {name: _size(one.shape) for name, one in before.items() if one.is_matrix}
    return sum(sizes[name] for name in left) / sum(sizes.values())


def group_for(tensors: Mapping[str, Stored], wanted: int | None) -> int:
    """Weights that share a scale: those wanted, else the most that leave the fewest weights out."""
    if wanted is not None:
        return wanted
    lost = {
        group: sum(_size(tensors[n].shape) for n in misfits(tensors, group)) for group in GROUPS
    }
    return min(GROUPS, key=lambda group: (lost[group], -group))


def misfits(tensors: Mapping[str, Stored], group: int) -> list[str]:
    """Matrices whose rows are no whole number of groups."""
    return [name for name, one in tensors.items() if one.is_matrix and one.shape[-1] % group]


def _size(shape: Sequence[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size
