"""A reward of TRL's signature, as an operator would write one."""

from __future__ import annotations

from typing import Any


def seven(completions: list[str], **_: Any) -> list[float]:
    """1 for a 7 anywhere."""
    return [float("7" in completion) for completion in completions]
