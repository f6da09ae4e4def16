"""`python -m engine look`, the child: kind and config on stdin, the answer on stdout, as JSON.

What the looked-at code prints goes nowhere, so that stdout holds the answer alone. Bounded in time
and memory by itself too, should whoever asked be gone. Knows no kind.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.look import Looked
from engine.contract.registry import get_kind


def look_from_stdin(limit_s: int, memory_gb: int) -> None:
    """Answer one question and return."""
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    signal.alarm(limit_s)
    _limit_memory(memory_gb << 30)
    question = json.loads(sys.stdin.buffer.read())
    os.write(answer, _look(question["kind"], question["config"], memory_gb).written())


def _limit_memory(size: int) -> None:
    """Of what is written to, not of addresses: torch reserves far more of those than it uses."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


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
