"""The checkpoints that an evaluation scores: steps of one run, or models and adapters by name.

Each is written down as what it is made of, because `selected` may move. Loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from engine.contract.base_model import EMBEDDED_BASES, checkpoint_origin, model_reference
from engine.contract.paths import located
from engine.contract.provenance import run_of_any_kind
from engine.contract.run_dir import COMPLETE, RunDir, RunDirError, complete_checkpoints, step_of
from engine.contract.section import Section

ALL = "all"


class EvalCheckpoint(Section):
    """One model that is scored."""

    label: str
    """What tables call it."""
    base: str
    """The model: an embedded one, a Hugging Face folder or a hub id."""
    adapter_init: str | None = None
    """A PEFT folder of LoRA or DoRA on it."""
    base_seed: int = Field(0, ge=0, lt=2**31)
    """Of an embedded model: the seed of its random weights."""
    step: int = Field(0, ge=0)
    """Of the run that trained it; it numbers the files of its completions."""
    run: int | None = None
    """The job that trained it."""
    trained_from: str | None = None
    """The model that its training began from."""

    @property
    def path(self) -> str | None:
        """Its folder or hub id; None for an embedded model."""
        return self.adapter_init or (None if self.base in EMBEDDED_BASES else self.base)


def checkpoints_of(base: str, asked: Any) -> list[dict[str, Any]]:
    """What `checkpoints` says, each as a mapping. Mappings pass as they are.

    Raises ValueError for a step that the run of `base` does not have, and for a torn checkpoint.
    """
    if asked == ALL:
        asked = [step for step, _ in _complete(base)]
    if not isinstance(asked, list):
        raise ValueError("must be all, or a list of steps and of models; write [0, 20, 40]")  # noqa: TRY004 - pydantic reads it
    if all(isinstance(one, dict) for one in asked):
        return asked  # as they were resolved before
    return _numbered([one if isinstance(one, dict) else _checkpoint(base, one) for one in asked])


def of_place(place: str) -> dict[str, Any]:
    """A model, an adapter, a run (its published checkpoint) or one of its checkpoints.

    Raises ValueError for a torn checkpoint, and for an adapter whose base nobody names.
    """
    if place.startswith("embedded:"):
        return {"label": place.partition(":")[2], "base": place}
    folder = located(place)
    require_whole(folder)
    origin = checkpoint_origin(folder)
    if origin is None:
        base = model_reference(place)
        name = Path(base).name if Path(base).is_absolute() else base
        known = _known_of(base)  # a whole model that stage 2 trained
        told = {} if known.run is None else {"step": known.step, "run": known.run}
        return {"label": f"step {known.step}" if told else name, "base": base, **told}
    known = _known_of(origin.adapter or origin.base)
    label = f"step {known.step}" if known.run is not None else folder.name
    return {
        "label": label,
        "base": origin.base,
        "adapter_init": origin.adapter,
        "base_seed": origin.seed if origin.base in EMBEDDED_BASES else 0,
        "step": known.step,
        "run": known.run,
        "trained_from": origin.config.get("base"),
    }


def require_whole(folder: Path) -> None:
    """Raises ValueError for a checkpoint of a run that was never finished."""
    if folder.parent.name == "checkpoints" and step_of(folder.name) is not None:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not there; {_known(RunDir(folder.parent.parent))}")
        if not (folder / COMPLETE).is_file():
            raise ValueError(
                f"{folder} is torn: it has no {COMPLETE}, so its writer died; "
                f"{_known(RunDir(folder.parent.parent))}"
            )


def _checkpoint(base: str, asked: Any) -> dict[str, Any]:
    if isinstance(asked, str):
        return of_place(asked)
    if isinstance(asked, bool) or not isinstance(asked, int):
        raise ValueError(f"{asked!r} is neither a step nor a model")  # noqa: TRY004 - as above
    found = dict(_complete(base)).get(asked)
    if found is None:
        raise ValueError(f"has no step {asked}: {_known(_run_of(base))}")
    return of_place(str(found))


def _complete(base: str) -> Sequence[tuple[int, Path]]:
    found = complete_checkpoints(_run_of(base))
    if not found:
        raise ValueError(f"base {base} is a run without a whole checkpoint")
    return found


def _run_of(base: str) -> RunDir:
    run = None if base.startswith("embedded:") else RunDir(located(base))
    if run is None or not run.checkpoints.is_dir():
        raise ValueError(f"names steps, and base {base} is no run; set base to its directory")
    return run


def _known(run: RunDir) -> str:
    steps = ", ".join(str(step) for step, _ in complete_checkpoints(run)) or "none"
    return f"whole checkpoints of {run.root} are of steps {steps}"


class _Known(NamedTuple):
    step: int = 0
    run: int | None = None


def _known_of(place: str) -> _Known:
    """Step and job of a checkpoint inside a run directory."""
    run = run_of_any_kind(place)
    if run is None:
        return _Known()
    steps = (step_of(folder.name) for folder in (Path(place), *Path(place).parents))
    step = next((one for one in steps if one is not None), 0)
    try:
        return _Known(step, run.attempt(run.latest_attempt()).read_job().job_id)
    except RunDirError:
        return _Known(step)


def _numbered(found: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those of one run by their steps; others by their place, under names of their own."""
    runs = {one.get("run") for one in found}
    steps = [one.get("step", 0) for one in found]
    if len(runs) == 1 and None not in runs and len(set(steps)) == len(steps):
        return [dict(one) for one in found]
    named = [
        f"run {one['run']} {one['label']}" if one.get("run") is not None else str(one["label"])
        for one in found
    ]
    twice = [label for label in named if named.count(label) > 1]
    return [
        {**one, "step": place, "label": f"{label} ({place})" if label in twice else label}
        for place, (one, label) in enumerate(zip(found, named, strict=True))
    ]
