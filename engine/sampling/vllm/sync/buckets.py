"""Weights as bucketfuls of bytes: many tensors become few transfers of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

MOST = 512 * 1024 * 1024
"""Bytes of one bucketful, as ms-swift has them; a larger tensor has one of its own."""


class Piece(NamedTuple):
    """Where one tensor lies in a bucketful."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    first: int
    """Its first element, counted in elements of its type."""
    numel: int
    """Elements."""

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.numel * self.dtype.itemsize

    @property
    def type_name(self) -> str:
        """`float32`."""
        return str(self.dtype).removeprefix("torch.")


class Bucketful(NamedTuple):
    """Tensors of one type, one behind the other without a gap."""

    pieces: list[Piece]
    last: bool
    """Whether the weights are whole with it."""

    @property
    def bytes(self) -> int:
        """Of the memory in use."""
        return sum(piece.bytes for piece in self.pieces)


def fill(weights: Iterable[tuple[str, Tensor]], memory: Tensor) -> Iterator[Bucketful]:
    """Copy the weights into `memory` (bytes, [N]), as much as it holds at a time; who asks for the
    next bucketful is done with this one.

    >>> memory = torch.zeros(8, dtype=torch.uint8)
    >>> halves = [("a", torch.ones(2, 2).half()), ("b", torch.ones(1).half())]
    >>> [([p.name for p in b.pieces], b.last) for b in fill(halves, memory)]
    [(['a'], False), (['b'], True)]
    """
    pieces: list[Piece] = []
    used = 0
    for name, tensor in weights:
        flat = tensor.detach().contiguous().view(-1)
        size = flat.numel() * flat.itemsize
        if pieces and (used + size > len(memory) or flat.dtype != pieces[0].dtype):
            yield Bucketful(pieces, last=False)
            pieces, used = [], 0
        memory[used : used + size].view(flat.dtype).copy_(flat)
        first = used // flat.itemsize
        pieces.append(Piece(name, flat.dtype, tuple(tensor.shape), first, flat.numel()))
        used += size
    yield Bucketful(pieces, last=True)


def size_for(whole: int, largest: int, most: int = MOST) -> int:
    """Bytes of memory for weights of `whole` bytes, whose largest tensor has `largest`."""
    return max(min(whole, most), largest)
