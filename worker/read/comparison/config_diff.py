"""What was set apart: the configs of some jobs, leaf by leaf. Knows no score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

ABSENT = "(not set)"
"""The job's kind does not have this setting."""


class SettingRow(BaseModel):
    """One setting over all jobs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    values: list[Any]
    """In the order of the jobs."""

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values)


def settings_of(configs: Sequence[Mapping[str, Any]]) -> list[SettingRow]:
    """Every leaf of the configs by dotted name, in the order of the first that has it."""
    leaves = [dict(_leaves(config)) for config in configs]
    names = dict.fromkeys(name for one in leaves for name in one)
    return [
        SettingRow(name=name, values=[one.get(name, ABSENT) for one in leaves]) for name in names
    ]


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
