"""torchao's formats: int8, fp8 and int4 weights in a folder that Transformers reads.

The head, and what it shares its weights with, stay as they are, as Transformers has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TorchAoConfig

from engine.requant.tensors import group_for, misfits, stored


def write(name: str, source: Path, target: Path, group_size: int | None) -> dict[str, Any]:
    """The 16-bit model of `source` in a format of torchao; what else is worth knowing of it."""
    tensors = stored(source)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    group = group_for(tensors, group_size)
    plain: Any = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    kept = _not_converted(plain)
    if name == "int4":
        kept += [name.removesuffix(".weight") for name in misfits(tensors, group)]
    del plain
    config = TorchAoConfig(_quantized(name, group, device), modules_to_not_convert=sorted({*kept}))
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, dtype="auto", device_map=device, quantization_config=config
    )
    model.save_pretrained(target)
    if name != "int4":
        return {}
    unpacked = {"note": _UNPACKED} if device == "cpu" else {}
    return {"group_size": group, **unpacked}


_UNPACKED = (
    "each weight takes a byte: torchao packs two into one on a CUDA device only, where this format "
    "is also computed in"
)


def _not_converted(model: Any) -> list[str]:
    """The head, by name: what comes out of it decides between tokens that are close."""
    head = model.get_output_embeddings()
    return [name for name, module in model.named_modules() if module is head]


def _quantized(name: str, group: int, device: str) -> Any:
    from torchao import quantization  # noqa: PLC0415 - an extra; imports for seconds

    match name, device:
        case "int8", _:
            return quantization.Int8WeightOnlyConfig(version=2)
        case "fp8", _:
            return quantization.Float8WeightOnlyConfig(version=2)
        case _, "cuda":
            return quantization.Int4WeightOnlyConfig(
                group_size=group, int4_packing_format="tile_packed_to_4d"
            )
        case _:
            return quantization.IntxWeightOnlyConfig(
                weight_dtype=torch.int4,  # type: ignore[attr-defined]
                granularity=quantization.PerGroup(group),
            )
