"""Alerts of a run: what it said while it went on, with the completions that show it.

Read from a live or final result; a part that is missing or of another type reads as not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.contract.known import whole

Sample = tuple[str, str, str]
"""A completion that shows what is said: (prompt, completion, reward)."""


class Alert(BaseModel):
    """Something a person should know about a run."""

    model_config = ConfigDict(frozen=True)

    code: str
    text: str
    step: int | None = None
    samples: list[Sample] = []


def said_in(result: Mapping[str, Any]) -> list[Alert]:
    """In the order in which they were said."""
    items = result.get("alerts")
    return [
        Alert(
            code=str(item.get("code", "ALERT")),
            text=item["text"],
            step=whole(item.get("step")),
            samples=samples_of(item),
        )
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("text"), str)
    ]


def samples_of(of: Any) -> list[Sample]:
    """Of an alert, or of a diagnosis."""
    items = of.get("samples") if isinstance(of, Mapping) else None
    return [
        (str(item.get("prompt", "")), str(item.get("completion", "")), str(item.get("reward", "")))
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping)
    ]
