"""`python -m engine look`, the child: kind and config on stdin, the answer on stdout, as JSON.

Knows no kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.look import Looked
from engine.contract.registry import get_kind
from engine.run.child import answer_from_stdin


def look_from_stdin(limit_s: int, memory_gb: int) -> None:
    """Answer one question and return."""

    def answered(question: Any) -> bytes:
        return _look(question["kind"], question["config"], memory_gb).written()

    answer_from_stdin(limit_s, memory_gb, answered)


def _look(kind_name: str, raw: Mapping[str, Any], memory_gb: int) -> Looked:
    """What the kind's look answers; what it breaks on is a caution, not a refusal."""
    kind = get_kind(kind_name)
    assert kind.look is not None, "only a kind that declares a look is asked"
    module, _, function = kind.look.entry.partition(":")
    try:
        look: Callable[[Any], Looked] = getattr(importlib.import_module(module), function)
        return look(kind.config.model_validate(dict(raw)))
    except MemoryError:
        reason = f"it needs more than {memory_gb} GB"
    except Exception as error:  # noqa: BLE001 - a process boundary: the run itself may still work
        reason = f"{type(error).__name__}: {error}"
    return Looked.unknown(reason)
