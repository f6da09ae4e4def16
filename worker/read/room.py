"""What a job will not find on this machine: memory that is not there, a disk that its checkpoints
fill. Said when it is queued, with the figures and the setting that makes them smaller.

A machine that is merely busy is no reason: the job waits for its turn. Writes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from engine.contract.envelope import Checkpoints
from engine.contract.errors import ConfigProblem
from engine.contract.kind import Kind
from engine.contract.known import setting_of
from engine.contract.registry import cautions, get_kind
from worker.db.connection import Database
from worker.queue.places import in_place
from worker.queue.submission import Submission
from worker.queue.sweeps import cautions_of, checked_axes, config_at, spread
from worker.read.check import Prospect, prospects
from worker.schedule.admission import memory_of

MUCH_GB = 1000.0
"""Written over a run: from here on a word is worth while, for time and for wear."""


def cautions_here(db: Database, wanted: Submission) -> list[ConfigProblem]:
    """What a submission that can be queued had better not say, and what this machine lacks for it.

    Of a sweep, what several of its values have in common is said once.
    """
    wanted = in_place(wanted, db.settings.runs_dir)
    if wanted.sweep is None:
        return [*cautions(wanted.kind, wanted.config), *_room(db, wanted.kind, [wanted.config])]
    points = spread(checked_axes(wanted))
    configs = [config_at(wanted.config, point) for point in points]
    return [*cautions_of(wanted), *_room(db, wanted.kind, configs)]


def _room(
    db: Database, kind_name: str, configs: Sequence[Mapping[str, Any]]
) -> list[ConfigProblem]:
    kind = get_kind(kind_name)
    models = [kind.config.model_validate(dict(raw)) for raw in configs]
    with prospects(db, memory_of(db)) as looked:
        found = [looked.of(kind_name, config) for config in models]
    return room_cautions(db, kind_name, models, found)


def room_cautions(
    db: Database, kind_name: str, models: Sequence[BaseModel], found: Sequence[Prospect]
) -> list[ConfigProblem]:
    """What this machine lacks for some configs, each setting said once; `found`: of each config."""
    kind, free = get_kind(kind_name), free_gb(db.settings.runs_dir)
    said: dict[str, ConfigProblem] = {}
    for config, one in zip(models, found, strict=True):
        disk = kind.checkpoints(config)
        for caution in (
            *memory_cautions(kind, config, one),
            *(disk_cautions(kind, config, disk, free) if disk else ()),
        ):
            said.setdefault(caution.field, caution)
    return list(said.values())


def memory_cautions(kind: Kind, config: BaseModel, found: Prospect) -> Iterator[ConfigProblem]:
    """More than the machine could ever give."""
    total, need = found.memory.total_gb, found.need_gb
    if total is None or need is None or need <= (gives := total - found.memory.floor_gb):
        return
    parts = {name: gb for name, gb in (found.parts_gb or {}).items() if gb >= 0.05}
    largest = sorted(parts, key=lambda name: -parts[name])
    told = ", ".join(f"{name} {parts[name]:.1f}" for name in largest[:3])
    settings = list(dict.fromkeys(kind.lowers[name] for name in largest if name in kind.lowers))
    setting = settings[0] if settings else kind.model or "kind"
    problem = (
        f"makes a run that needs about {need:.1f} GB{f' ({told})' if told else ''}; this machine "
        f"gives a run {gives:.1f} at most, so it will be put off (OOM_ENVELOPE)"
    )
    remedy = f"lower {' or '.join(settings[:3])}" if settings else "take a smaller model"
    yield ConfigProblem(setting, _value(config, setting), problem, remedy)


def disk_cautions(
    kind: Kind, config: BaseModel, disk: Checkpoints, free: float | None
) -> Iterator[ConfigProblem]:
    """More than is free, or more than a disk should take in a night."""
    setting = kind.lowers.get("checkpoints", "save_every")
    size = f"a checkpoint is {disk.each:.1f} GB"
    if free is not None and disk.most > free:
        problem = (
            f"fills the disk: {size}, {min(disk.kept, disk.written)} are kept at once "
            f"({disk.most:.0f} GB), and {free:.0f} GB are free at the run directories"
        )
        remedy = "make room (cockpit prune), keep fewer checkpoints, or train fewer weights"
        yield ConfigProblem(setting, _value(config, setting), problem, remedy)
    elif disk.total >= MUCH_GB:
        problem = f"writes {disk.total / 1000:.1f} TB: {size}, and {disk.written} are written"
        yield ConfigProblem(setting, _value(config, setting), problem, "write fewer: raise it")


def free_gb(place: Path) -> float | None:
    """At the nearest folder that exists; None where nobody can tell."""
    try:
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free / 1e9
    except OSError:
        return None


def _value(config: BaseModel, setting: str) -> Any:
    return setting_of(config.model_dump(mode="json"), setting)
