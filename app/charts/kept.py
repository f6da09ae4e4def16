"""Texts that cost more to make than to keep, under all that they follow from.

A kept one is never an old one: what it shows is in its key, so nobody has to say when something
changed. Bounded by length, the least recently used goes first. Knows no database and no page.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made", str, bytes)


class Kept(Generic[Made]):
    """Safe to share between threads; two that ask at once may both make the same one."""

    def __init__(self, most: int) -> None:
        """`most`: the length of all together."""
        self._most = most
        self._made: OrderedDict[Hashable, Made] = OrderedDict()
        self._length = 0
        self._turn = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The one under this key, made now if there is none."""
        with self._turn:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._turn:
            before = self._made.pop(key, None)
            self._length += len(made) - (len(before) if before is not None else 0)
            self._made[key] = made
            while self._length > self._most:
                _, oldest = self._made.popitem(last=False)
                self._length -= len(oldest)
        return made
