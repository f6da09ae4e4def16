"""Texts at which a completion ends, as `until` of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence


def cut_at(text: str, stops: Sequence[str]) -> str:
    r"""What stands before the first stop text.

    >>> cut_at("18\n\nQuestion: Why?", ["Question:", "</s>"])
    '18\n\n'
    """
    for stop in stops:
        text = text.split(stop, 1)[0] if stop else text
    return text
