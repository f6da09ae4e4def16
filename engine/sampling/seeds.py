"""Randomness by name: a draw depends on who it is for, never on what was drawn before.

Counter-based (SplitMix64 over a hashed key), so a completion is the same alone, in any batch,
and after a resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: int | str) -> int:
    """A 64-bit key of a name such as (run seed, purpose, prompt id, version, sample)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def draw_number(draw: int | None, version: int, *, pinned: bool) -> int:
    """Which draw of a question this is: by the curriculum's count, else by the weights' version.

    The count goes on where weights stand still, so a step that taught nothing is not followed by
    the same completions once more. Pinned draws are all alike.
    """
    if pinned:
        return 0
    return version if draw is None else draw


def uniforms(keys: Sequence[int], length: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), shape (len(keys), length); row i depends on keys[i] alone.

    SplitMix64 (Steele, Lea, Flood 2014): output t of a stream mixes its key + (t + 1)·golden.
    """
    counters = np.arange(1, length + 1, dtype=np.uint64)[None, :]
    with np.errstate(over="ignore"):
        z = np.asarray(keys, dtype=np.uint64)[:, None] + counters * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform: npt.NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform
