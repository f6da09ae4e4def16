"""Does a completion say the same thing over and over? By token ids; torch-free."""

from __future__ import annotations

from collections.abc import Sequence

_GRAM = 4
_SHORTEST = 32
"""Tokens under which nothing is called a repetition."""
_DISTINCT = 0.3
"""Share of different 4-grams under which a text is a loop; prose and working lie above 0.9."""


def repeats_itself(completion_ids: Sequence[int]) -> bool:
    """Whether less than three in ten of its 4-grams are different ones.

    >>> repeats_itself([7, 8] * 40), repeats_itself(range(80)), repeats_itself([7] * 8)
    (True, False, False)
    """
    count = len(completion_ids) - _GRAM + 1
    if len(completion_ids) < _SHORTEST:
        return False
    grams = {tuple(completion_ids[i : i + _GRAM]) for i in range(count)}
    return len(grams) / count < _DISTINCT
