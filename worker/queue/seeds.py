"""`seeds: [0, 1, 2]`: short for the sweep over a kind's seed with one held-out split for all.

Runs of one config that differ in their seed alone are a seed group; what they have in common is
tested between runs. Without the same held-out rows they would be none, so the split's seed is the
first of the list unless somebody sets it: it becomes an axis of its own, with one value, which
every page of the sweep shows. Knows no door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kind import Kind
from engine.contract.known import setting_of
from engine.contract.registry import get_kind

SEEDS = "seeds"
_WRITE = "write seeds: [0, 1, 2]"


def without_seeds(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A request whose `seeds`, beside its config or in it, have become axes of its sweep.

    Raises ConfigError for what is no list of seeds, and for a kind that has none.
    """
    request, seeds = _taken_out(raw)
    if seeds is None or not isinstance(request.get("kind"), str):
        return request
    kind, checked = get_kind(request["kind"]), _checked(seeds)
    if kind.seed is None:
        remedy = "leave seeds out, or sweep over a setting of the kind"
        raise _problem(seeds, f"are given, and kind {kind.name} has no seed", remedy)
    config, sweep = request.get("config"), request.get("sweep") or {}
    if not isinstance(sweep, Mapping):
        return request
    if kind.seed in sweep:
        raise _problem(seeds, f"stand beside a sweep over {kind.seed}", "give one of the two")
    axes = {**sweep, **_split_axis(kind, config, sweep, checked[0]), kind.seed: checked}
    return {**request, "sweep": axes}


def _taken_out(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    request, config = dict(raw), raw.get("config")
    beside = request.pop(SEEDS, None)
    if not isinstance(config, Mapping) or SEEDS not in config:
        return request, beside
    if beside is not None:
        raise _problem(beside, "stand twice: in the config and beside it", "give one of the two")
    request["config"] = {name: value for name, value in config.items() if name != SEEDS}
    return request, config[SEEDS]


def _checked(seeds: Any) -> list[int]:
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not seeds:
        raise _problem(seeds, "is no list of whole numbers", _WRITE)
    if len(set(seeds)) < len(seeds):
        raise _problem(seeds, "has a seed twice", "give each seed once")
    return list(seeds)


def _split_axis(
    kind: Kind, config: Any, sweep: Mapping[str, Any], first: int
) -> dict[str, list[int]]:
    """Nothing where the split's seed is said, or where the seed has no part in the split."""
    name = kind.split_seed
    if name is None or name in sweep or setting_of(config, name) is not None:
        return {}
    return {name: [first]}


def _problem(value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem(SEEDS, value, problem, remedy)])
