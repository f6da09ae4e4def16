"""What a PEFT folder says of itself, before anything loads it: its method, and its base.

Reads `adapter_config.json`; whether its tensors fit is for whoever has the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigProblem

_CONFIG = "adapter_config.json"


def adapter_problems(field: str, folder: Path, *, tuning: str | None) -> Sequence[ConfigProblem]:
    """Why a run with this `tuning` cannot begin from an adapter; None: one that only reads it.

    Raises OSError.
    """
    told = read_json_object(folder / _CONFIG)
    method = told.get("peft_type") or "LORA"
    if method != "LORA":
        problem = f"is a {method} adapter; LoRA and DoRA are trained here"
        return [ConfigProblem(field, str(folder), problem, _MERGE)]
    whole = told.get("modules_to_save") or told.get("trainable_token_indices")
    if whole:
        problem = f"holds weights of the base itself ({_named(whole)}) beside its matrices"
        return [ConfigProblem(field, str(folder), problem, _MERGE)]
    # An adapter stays what it is: LoRA does not become DoRA by being read as one.
    is_dora = told.get("use_dora") is True
    fitting = "dora" if is_dora else "lora"
    if tuning in {fitting, None}:
        return []
    problem = f"does not fit {field}, which holds a {'DoRA' if is_dora else 'LoRA'} adapter"
    remedy = f"set tuning: {fitting}, or {field} to another adapter (null for none)"
    return [ConfigProblem("tuning", tuning, problem, remedy)]


_MERGE = "merge it into its base (PEFT's merge_and_unload), set base to that, and this to null"


def _named(whole: Any) -> str:
    """Modules, or tokens of the embedding."""
    if isinstance(whole, list) and all(isinstance(name, str) for name in whole):
        return "modules_to_save: " + ", ".join(whole[:3])
    return "trainable_token_indices"


def is_of_stacks(folder: Path) -> bool:
    """Whether an adapter is of bare parameters, such as stacked experts. Raises OSError."""
    return bool(read_json_object(folder / _CONFIG).get("target_parameters"))


def base_cautions(field: str, folder: Path, base: str) -> Sequence[ConfigProblem]:
    """An adapter that says it was trained on another model than the run's `base`."""
    try:
        told = read_json_object(folder / _CONFIG)
    except OSError:
        return []  # refused at the door; of a job that ran, its folder is gone
    named = told.get("base_model_name_or_path")
    if not isinstance(named, str) or not named or is_same_model(named, base):
        return []
    problem = f"was trained on {named}, as it says, and base is another: {base}"
    remedy = "name the base it was trained on, unless they are the same under two names"
    return [ConfigProblem(field, str(folder), problem, remedy)]


def is_same_model(one: str, other: str) -> bool:
    """Whether two names stand for one model, as far as names tell: hub ids, folders, and a folder
    that was downloaded or called after a hub id.

    >>> is_same_model("Qwen/Qwen3-8B", "qwen/qwen3-8b"), is_same_model("a/one", "b/one")
    (True, False)
    >>> is_same_model("Qwen/Qwen3-8B", "/cache/models--Qwen--Qwen3-8B/snapshots/0a1b")
    True
    """
    if one.rstrip("/").casefold() == other.rstrip("/").casefold():
        return True
    paths = [Path(os.path.expandvars(name)).expanduser() for name in (one, other)]
    try:
        if paths[0].resolve() == paths[1].resolve() or paths[0].samefile(paths[1]):
            return True
    except (OSError, RuntimeError):
        pass  # one of them is no path here
    folders = [path.is_absolute() for path in paths]
    if folders == [True, False]:
        return _is_called(paths[0], other)
    return folders == [False, True] and _is_called(paths[1], one)


def _is_called(folder: Path, hub_id: str) -> bool:
    owner, _, name = hub_id.casefold().rpartition("/")
    parts = [part.casefold() for part in folder.parts]
    return parts[-1] in {name, f"{owner}--{name}", f"{owner}_{name}"} or (
        f"models--{owner}--{name}" in parts
    )
