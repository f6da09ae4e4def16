"""Splits of a source: named by its files, asked for where there are several, never joined."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from engine.contract.errors import NightlaneError

_WORDS = {
    "train": "train training",
    "validation": "validation valid val dev eval evaluation",
    "test": "test testing",
}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words.split()}
_SHARD = re.compile(r"(?P<name>.+?)[-_.](?P<index>\d{5})-of-(?P<count>\d{5})")
_NUMBER = re.compile(r"(?:(?:^|[-_. ])(?:part|shard)?)[-_. ]?\d+$", re.IGNORECASE)
"""Behind the name of one of several files: `rows_01`, `part-3`."""
_PART = re.compile(r"[^a-z0-9]+")


class SplitError(NightlaneError):
    """Which split is meant is not said, or it is not there."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem, self.remedy = problem, remedy


def chosen(splits: Sequence[str], split: str | None) -> str:
    """The one that is asked for, or the only one. Raises SplitError."""
    if split is None:
        if len(splits) == 1:
            return splits[0]
        problem = f"has {len(splits)} splits: {', '.join(splits[:12])}"
        raise SplitError(problem, "set data.split to the one to train on; they are never joined")
    meant = [name for name in splits if split in {name, _split_named(name)}]
    if len(meant) == 1 or split in meant:
        return split if split in meant else meant[0]
    has = ", ".join(splits[:12]) or "none"
    near = difflib.get_close_matches(split, splits, 1)
    remedy = f"did you mean {near[0]}?" if near else "set data.split to one of these"
    raise SplitError(f"has no split {split!r}; it has: {has}", remedy)


def _split_named(name: str) -> str:
    return _SPLIT_OF.get(name.lower(), name)


def split_of(stem: str, folders: Sequence[str] = ()) -> str:
    """The split that a file belongs to, by its own name or that of a folder; without one its stem,
    less a number at the end: those are parts of one.

    >>> split_of("train-00000-of-00002"), split_of("gsm8k_test"), split_of("0000", ["train"])
    ('train', 'test', 'train')
    >>> split_of("rows_01"), split_of("part-2"), split_of("math500")
    ('rows', 'rows', 'math500')
    """
    shard = _SHARD.fullmatch(stem)
    name = shard["name"] if shard else _NUMBER.sub("", stem) or "rows"
    words = _PART.split(name.lower())
    found = [_SPLIT_OF[word] for word in words if word in _SPLIT_OF]
    if found:
        return found[-1]
    inside = [_SPLIT_OF[one.lower()] for one in folders if one.lower() in _SPLIT_OF]
    return inside[-1] if inside else name


def shard_of(stem: str) -> tuple[str, int, int] | None:
    """Name, index and count of `train-00000-of-00002`; None for a file that is no shard.

    >>> shard_of("train-00001-of-00002")
    ('train', 1, 2)
    """
    found = _SHARD.fullmatch(stem)
    return (found["name"], int(found["index"]), int(found["count"])) if found else None
