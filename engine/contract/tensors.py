"""What a safetensors file holds, by its header alone: names, types and shapes, no number."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.contract.documents import opened, parse_json

_MOST_HEADER = 100 * 1024 * 1024


class TensorShape(NamedTuple):
    """As the header has it."""

    dtype: str
    """`F32`, `BF16`, `F8_E4M3` …"""
    shape: tuple[int, ...]


def tensors(path: Path) -> Mapping[str, TensorShape] | None:
    """By name; None for a file whose header cannot be read: 8 bytes of length, then JSON."""
    try:
        with opened(path) as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MOST_HEADER:
                return None
            header = parse_json(stream.read(length))
        return {
            name: TensorShape(str(one["dtype"]), tuple(int(size) for size in one["shape"]))
            for name, one in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, struct.error, TypeError, AttributeError, LookupError):
        return None
