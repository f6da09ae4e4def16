"""Export: a checkpoint as one plain model folder, adapter merged in.

`python -m engine export CHECKPOINT OUT`. What comes out loads without PEFT and without us.
Knows no training.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.contract.documents import read_json_object
from engine.models import lora
from engine.models.qwen3_vl import ModelError, load
from engine.run.checkpoint import verified
from engine.stage2.warmed_base import base_beside

_ADAPTER = "adapter_config.json"


def export(checkpoint: Path, target: Path) -> None:
    """Whole weights, tokenizer and image processor, into a folder that is not there yet.

    Raises ModelError.
    """
    base = _base_of(checkpoint)
    vlm = load(str(base or checkpoint), dtype="auto", attn_implementation="sdpa")
    if base is not None:
        try:
            vlm = replace(vlm, model=lora.merged(vlm.model, checkpoint))
        except lora.AdapterError as error:
            raise ModelError(
                f"{checkpoint} {error}: {base}; name its own base in {_ADAPTER}"
            ) from None
    vlm.save(target)


def _base_of(checkpoint: Path) -> str | None:
    """What the checkpoint's adapter belongs to; None for whole weights. Raises ModelError."""
    path = checkpoint / _ADAPTER
    if not path.is_file():
        return None
    beside = base_beside(checkpoint)
    if beside is not None:
        return str(_unharmed(beside))
    try:
        found = read_json_object(path)["base_model_name_or_path"]
    except (OSError, KeyError):
        raise ModelError(f"{path} names no base model; save the adapter again") from None
    return str(found)


def _unharmed(base: Path) -> Path:
    """Raises ModelError for a base that is no longer what the adapter was trained on."""
    wrong: list[str] = []
    if verified(base, lambda _, text: wrong.append(text)) is None:
        raise ModelError(
            f"{base} is damaged ({wrong[0]}); bring it back from a copy, or run the job again"
        )
    return base
