"""What of other people's packages somebody replaced: each function and class by who it is."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

PACKAGES = frozenset({"transformers", "accelerate", "peft", "torch", "swift", "trl"})

Snapshot = Mapping[str, Any]
"""Dotted name → what stands there."""


def snapshot(packages: Collection[str] = PACKAGES) -> Snapshot:
    """Functions and classes of all loaded modules, and what the classes define."""
    return {
        name: value
        for module, found in list(sys.modules.items())
        if module.partition(".")[0] in packages
        for name, value in _named(module, found)
    }


def replaced(before: Snapshot, after: Snapshot) -> set[str]:
    """Names that stand for something else now. What was loaded since is nobody's patch."""
    return {name for name, value in before.items() if after.get(name, value) is not value}


def _named(module: str, found: ModuleType | None) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(found).items()) if found else ():
        if callable(value):
            yield f"{module}.{name}", value
        if isinstance(value, type) and value.__module__ == module:
            for inner, defined in list(vars(value).items()):
                if callable(defined) or isinstance(defined, staticmethod | classmethod | property):
                    yield f"{module}.{name}.{inner}", defined
