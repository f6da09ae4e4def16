"""The model that a config names: an embedded one, a Hugging Face folder, or a hub id; and what a
run's checkpoint or an adapter's folder means by it.

Looks at names and JSON files; loads no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigProblem
from engine.contract.hub import hub_problems
from engine.contract.model_folder import folder_problems, is_bare_adapter
from engine.contract.paths import located
from engine.contract.provenance import run_around
from engine.contract.sources.questions import EMBEDDED_TASKS

EMBEDDED_BASES = ("embedded:qwen3-tiny",)
"""Models built on the spot, with random weights: no download."""
WEIGHTS = ("*.safetensors", "*.bin")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def model_reference(base: str) -> str:
    """An embedded name or a hub id as it is, a folder as an absolute path. Raises ValueError."""
    if base.startswith("embedded:"):
        if base not in EMBEDDED_BASES:
            raise ValueError(f"is not an embedded model; known: {', '.join(EMBEDDED_BASES)}")
        return base
    path = located(base)
    return base if _HUB_ID.fullmatch(base) and not path.exists() else str(path)


def base_problems(field: str, base: str) -> Sequence[ConfigProblem]:
    """A folder that is no model, or a hub id that cannot come."""
    if base in EMBEDDED_BASES:
        return []
    if not Path(base).is_absolute():
        return hub_problems(field, base)
    folder = Path(base)
    if is_bare_adapter(folder):
        remedy = f"set {field} to the model it was trained on, and adapter_init to {folder}"
        return [ConfigProblem(field, str(folder), "is an adapter, no whole model", remedy)]
    return folder_problems(field, folder, marker="config.json", what="model", weights=WEIGHTS)


def unreadable_by(base: str, source: str) -> str | None:
    """Why an embedded model cannot read the rows of a source; None for every other model."""
    foreign = source in EMBEDDED_TASKS or not source.startswith("embedded:")
    if base not in EMBEDDED_BASES or source == "embedded:addition" or not foreign:
        return None
    return (
        f"cannot be read by base {base}, which only knows the characters of embedded:addition; set "
        "base to a model that reads any text (a Hugging Face folder or hub id, e.g. "
        "Qwen/Qwen2.5-0.5B-Instruct)"
    )


def folder_files(*folders: str | None) -> list[Path]:
    """What model and adapter folders hold at their top level; nothing of a name that is none."""
    there = [Path(folder) for folder in folders if folder and Path(folder).is_dir()]
    return [entry for one in there for entry in sorted(one.iterdir()) if entry.is_file()]


class Origin(NamedTuple):
    """What a checkpoint is made of."""

    base: str
    adapter: str | None
    seed: int
    """Of the run that it is from: an embedded model's random weights are drawn with it."""
    config: dict[str, Any]
    """Of that run, as it was resolved; empty where nobody knows it."""


def checkpoint_origin(place: Path) -> Origin | None:
    """Of a run directory (its published checkpoint), a checkpoint in one, its `model` or `adapter`
    folder, or a PEFT folder elsewhere; None for any other place.

    Raises ValueError for an adapter whose base nobody names.
    """
    folder = place.resolve()
    if (folder / "selected").is_dir():
        folder = (folder / "selected").resolve()
    for inside in ("model", "adapter"):
        if (folder / inside).is_dir():
            folder = folder / inside
            break
    config = _config_of(folder)
    seed = config.get("seed")
    told = seed if isinstance(seed, int) else 0
    if is_bare_adapter(folder):
        base = config.get("base") or read_json_object(folder / "adapter_config.json").get(
            "base_model_name_or_path"
        )
        if not isinstance(base, str) or not base:
            raise ValueError(
                f"{folder} is an adapter, and nothing says of which model; set base to that model "
                "and adapter_init to this folder"
            )
        return Origin(base, str(folder), told, config)
    if (folder / "config.json").is_file() and (folder != place.resolve() or config):
        return Origin(str(folder), None, told, config)
    return None


def _config_of(folder: Path) -> dict[str, Any]:
    run = run_around(str(folder))
    if run is None:
        return {}
    try:
        found = read_json_object(run.attempt(run.latest_attempt()).job_file).get("config")
    except OSError:
        return {}
    return found if isinstance(found, dict) else {}
