"""A run that goes on from what another one ended with: its config, with that checkpoint to begin.

Loads no model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from engine.contract.base_model import checkpoint_origin
from engine.contract.errors import ConfigError, ConfigProblem

_FIELD = "--from"


def continued(
    kind: str, config: Mapping[str, Any], place: Path, *, chosen: Collection[str] = ()
) -> dict[str, Any]:
    """The config of a run as it was resolved, beginning with the checkpoint at `place`: a run
    directory (what it published) or one checkpoint in it. Settings in `chosen` stay as they are.

    The form of an answer was learnt: there is no warm-up. Raises ConfigError for a kind that trains
    nothing, a run without a checkpoint, and an adapter of stage 2, which begins with whole models.
    """
    try:
        origin = checkpoint_origin(place)
    except (OSError, ValueError) as error:
        raise _refused(place, f"cannot be gone on from: {error}", "name another step") from None
    if origin is None:
        problem = "is a run without a checkpoint to go on from"
        raise _refused(place, problem, "name another job, or one of its steps: 7@20")
    if kind == "rl_run":
        begins = {"base": origin.base, "adapter_init": origin.adapter, "warmup": None}
        return {**config, **{name: at for name, at in begins.items() if name not in chosen}}
    model = config.get("model")
    if not isinstance(model, Mapping):
        raise _refused(place, f"is of a {kind}, which trains nothing", "name an rl_run")
    if "model.path" in chosen:
        return dict(config)
    if origin.adapter is not None:
        remedy = "merge it first: cockpit merge JOB --to DIR, then add --set model.path=DIR"
        raise _refused(place, "is an adapter, and stage 2 begins with whole models", remedy)
    return {**config, "model": {**model, "path": origin.base}}


def _refused(place: Path, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem(_FIELD, str(place), problem, remedy)])
