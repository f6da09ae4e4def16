"""Export of a text run's checkpoint: one plain model folder, its adapter merged in.

`python -m engine export CHECKPOINT OUT`. Merged in fp32 and rounded once, into the type that the
base was saved in; what comes out loads without PEFT and without us. Knows no training.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from engine.contract.base_model import EMBEDDED_BASES, Origin, checkpoint_origin
from engine.contract.errors import RLLoopError
from engine.contract.rl.prompting import PromptingConfig
from engine.contract.run_dir import COMPLETE
from engine.models import lora
from engine.models.chat import local_now
from engine.models.loading import saved_type
from engine.models.policy import build, take_template
from engine.run.checkpoint import verified

_FIELD = "CHECKPOINT"


def is_of_text(checkpoint: Path) -> bool:
    """A text run writes `model` or `adapter` into a checkpoint, stage 2 the files themselves."""
    folder = checkpoint.resolve()
    return any((folder / inside).is_dir() for inside in ("model", "adapter"))


def export(checkpoint: Path, target: Path) -> None:
    """Weights and tokenizer, into `target`, a folder that is not there yet and is called `model`.

    Raises RLLoopError for a checkpoint that was harmed, a base that cannot be loaded and an adapter
    that does not fit it.
    """
    _require_whole(checkpoint.resolve())
    origin = checkpoint_origin(checkpoint)
    if origin is None:
        problem = "holds neither a model nor an adapter"
        raise RLLoopError.of(_FIELD, str(checkpoint), problem, "name a checkpoint of a run")
    if origin.adapter is None:
        shutil.copytree(origin.base, target)
    else:
        _merge(origin, Path(origin.adapter), target)


def _merge(origin: Origin, adapter: Path, target: Path) -> None:
    policy = build(origin.base, origin.seed)
    # A server ends where the run did: at the end of the chat template's turn.
    prompting: dict[str, Any] = origin.config.get("prompting") or {}
    take_template(policy, PromptingConfig.model_validate(prompting), local_now)
    try:
        policy.model = lora.merged(policy.model, adapter)
    except lora.AdapterError as error:
        remedy = f"it belongs to another base than {origin.base}; name that in adapter_config.json"
        raise RLLoopError.of(_FIELD, str(adapter), str(error), remedy) from error
    own = None if origin.base in EMBEDDED_BASES else saved_type(origin.base)
    policy.model.to(own or torch.float32)
    policy.save(target.parent)


def _require_whole(checkpoint: Path) -> None:
    """Of a run's checkpoint, that its files are those that were written."""
    if not (checkpoint / COMPLETE).is_file():
        problem = f"is no complete checkpoint: {COMPLETE} is missing"
        raise RLLoopError.of(_FIELD, str(checkpoint), problem, "name another step of that run")
    if verified(checkpoint, lambda _code, _text: None) is None:
        problem = "is damaged: a file of it is gone or has changed since it was written"
        raise RLLoopError.of(_FIELD, str(checkpoint), problem, "name another step of that run")
