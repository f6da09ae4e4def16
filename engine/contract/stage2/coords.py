"""Coordinates as 1000 bins: bin k stands for k/999, so 0 is the top-left corner, 999 the other.

One scheme both ways, for numbers and for tensors. Knows no image size and no tokenizer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LAST_BIN = 999
"""The largest bin; both image borders are inclusive, so it decodes to exactly 1.0."""
BIN_COUNT = LAST_BIN + 1


def encode(c: float) -> int:
    """A normalised coordinate as its bin: clamp(round(999 c), 0, 999).

    Raises ValueError for NaN and infinities.

    >>> encode(1.0), encode(0.5), encode(-0.2)
    (999, 500, 0)
    """
    if not math.isfinite(c):
        raise ValueError(f"{c} is no coordinate; give a finite number")
    return min(max(round(LAST_BIN * c), 0), LAST_BIN)


def decode(k: int) -> float:
    """A bin as its normalised coordinate k/999 in [0, 1]. Raises ValueError outside 0..999."""
    if not 0 <= k <= LAST_BIN:
        raise ValueError(f"{k} is no coordinate bin; bins are 0..{LAST_BIN}")
    return k / LAST_BIN


def encode_tensor(c: torch.Tensor) -> torch.Tensor:
    """`encode` element by element; any shape, int64. In double, so that it agrees with `encode`."""
    if not bool(c.isfinite().all()):
        raise ValueError("a coordinate is NaN or infinite; give finite numbers")
    return (c.double() * LAST_BIN).round().clamp(0, LAST_BIN).long()


def decode_tensor(k: torch.Tensor) -> torch.Tensor:
    """`decode` element by element; any shape, double."""
    if bool(((k < 0) | (k > LAST_BIN)).any()):
        raise ValueError(f"a coordinate bin lies outside 0..{LAST_BIN}")
    return k.double() / LAST_BIN


def token(k: int) -> str:
    """The spelling of bin k: `<|coord_k|>`."""
    return f"<|coord_{k}|>"


def bin_of(spelling: str) -> int | None:
    """The bin of a canonical spelling, None for any other text (leading zeros, 1000, a space).

    >>> bin_of("<|coord_7|>"), bin_of("<|coord_07|>"), bin_of("<|coord_1000|>")
    (7, None, None)
    """
    return _BIN_OF.get(spelling)


_BIN_OF = {token(k): k for k in range(BIN_COUNT)}
