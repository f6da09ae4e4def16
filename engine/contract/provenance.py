"""Descent: the earlier runs that a model or adapter folder came out of, and what they trained on.

A checkpoint inside a run directory has that run's config and split beside it; a folder that was
copied elsewhere tells nothing. Reads JSON files, loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import read_json_object
from engine.contract.run_dir import RunDir

BEGINS = ("base", "adapter_init")
"""Settings of an `rl_run` that name what it starts from."""
_MOST = 50
"""Runs that are followed: a chain, not a search."""


class Earlier(NamedTuple):
    """An `rl_run` that trained what a setting names."""

    field: str
    """The setting of the run that descends from it."""
    run: RunDir
    config: Mapping[str, Any]
    """As it was resolved."""

    @property
    def data(self) -> Mapping[str, Any]:
        """Section `data`."""
        found = self.config.get("data")
        return found if isinstance(found, Mapping) else {}

    @property
    def split_seed(self) -> Any:
        """The one that was in force."""
        given = self.data.get("split_seed")
        return self.config.get("seed") if given is None else given

    @property
    def trained(self) -> frozenset[str]:
        """Ids of the rows it trained on; empty where its split cannot be read."""
        found = _read(self.run.split).get("train")
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def earlier_runs(config: Mapping[str, Any]) -> Iterator[Earlier]:
    """Those that `base` and `adapter_init` came out of, those that these began from, and so on."""
    todo = [(name, config.get(name)) for name in BEGINS]
    seen: set[Path] = set()
    while todo and len(seen) < _MOST:
        field, place = todo.pop(0)
        found = run_around(place)
        if found is None or found.root in seen:
            continue
        seen.add(found.root)
        job = _read(found.attempt(found.latest_attempt()).job_file)
        before = job.get("config")
        if job.get("kind") != "rl_run" or not isinstance(before, Mapping):
            continue
        yield Earlier(field, found, before)
        todo += [(field, before.get(name)) for name in BEGINS]


def run_around(place: Any) -> RunDir | None:
    """The run directory that a folder lies in."""
    if not isinstance(place, str) or not Path(place).is_absolute():
        return None
    for folder in Path(place).parents:
        run = RunDir(folder)
        if run.checkpoints.is_dir() and run.split.is_file():
            return run
    return None


def run_of_any_kind(place: str) -> RunDir | None:
    """The same of a run of whatever kind: one that froze no split of rows, as stage 2, too."""
    folders = Path(place).parents if Path(place).is_absolute() else ()
    runs = (RunDir(folder) for folder in folders)
    return next((run for run in runs if run.checkpoints.is_dir() and run.latest_attempt()), None)


def _read(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty where there is none."""
    try:
        return read_json_object(path)
    except OSError:
        return {}
