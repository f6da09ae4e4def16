"""The register of job kinds: one file a kind, found by its place.

The config of a job passes through `validate` at every door, so each door gives the same errors.
Knows no engine.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from engine.contract import kinds as folder
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kind import Kind
from engine.contract.problems import nearest, problems_of, text_problems


class UnknownKindError(ConfigError):
    """A kind nobody registered."""


@cache
def kinds() -> Mapping[str, Kind]:
    """Every registered kind by name, in alphabetical order."""
    found: dict[str, Kind] = {}
    for module_info in pkgutil.iter_modules(folder.__path__):
        kind = importlib.import_module(f"{folder.__name__}.{module_info.name}").KIND
        found[kind.name] = kind
    return types.MappingProxyType(dict(sorted(found.items())))


def get_kind(name: str) -> Kind:
    """Raises UnknownKindError with the nearest name."""
    try:
        return kinds()[name]
    except KeyError:
        problem = ConfigProblem("kind", name, "is not a kind of job", nearest(name, list(kinds())))
        raise UnknownKindError([problem]) from None


def make_smaller(kind_name: str) -> str:
    """What to do about a job that needs too much memory: in settings that its kind has."""
    kind = kinds().get(kind_name)
    if kind is None or not kind.smaller:
        return "make it smaller"
    *others, last = kind.smaller
    return f"lower {', '.join(others)} or {last}" if others else f"lower {last}"


def validate(kind_name: str, raw: Mapping[str, Any]) -> BaseModel:
    """The one validation path: raw data → a config that can run on this machine.

    Raises UnknownKindError or ConfigError with every problem found.
    """
    kind = get_kind(kind_name)
    unwritable = text_problems(raw)
    if unwritable:
        raise ConfigError(unwritable)
    try:
        config = kind.config.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, kind.config)) from error
    found = kind.check(config)
    if found:
        raise ConfigError(found)
    return config


def cautions(kind_name: str, raw: Mapping[str, Any]) -> Sequence[ConfigProblem]:
    """What a config that `validate` accepts had better not say."""
    kind = get_kind(kind_name)
    return kind.cautions(kind.config.model_validate(dict(raw)))


def sweep_cautions(
    kind_name: str, raw: Mapping[str, Any], axes: Collection[str]
) -> Sequence[ConfigProblem]:
    """What a sweep over these settings had better not say; `raw`: the config of any point of it."""
    kind = get_kind(kind_name)
    return kind.sweep_cautions(kind.config.model_validate(dict(raw)), axes)
