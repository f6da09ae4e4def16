"""Waiting for a condition of another process, with a deadline instead of a nap."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, within_s: float = 90) -> T:
    """The first truthy answer of `look`; fails with `what` when none came in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s: {what}")
