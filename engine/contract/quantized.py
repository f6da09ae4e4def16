"""Whether a model folder is quantized: its weights are no numbers that training can move.

By what its files say, without torch: config.json, the files that quantizing tools leave, and the
types in the headers of its safetensors files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigProblem
from engine.contract.tensors import tensors

_SECTIONS = ("quantization_config", "compression_config", "quantization")
_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Of ModelOpt, GPTQ and AWQ, where config.json does not say it."""
_METHODS = ("quant_method", "quant_algo", "format")
_WHOLE = frozenset({"I4", "U4", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"})

REMEDY = "name the folder it was made from, in 16 or 32 bit, or one that was dequantized"


def quantized_problems(field: str, folder: Path) -> Sequence[ConfigProblem]:
    """A quantized folder, refused with the quantization's name."""
    found = quantization(folder)
    if found is None:
        return []
    problem = f"is quantized ({found}), and a run trains weights of 16 or 32 bit"
    return [ConfigProblem(field, str(folder), problem, REMEDY)]


def quantization(folder: Path) -> str | None:
    """What a folder says of its quantization; None for one that says nothing."""
    said = quantization_in(_read(folder / "config.json"))
    for name in _FILES:
        if said is None and (folder / name).is_file():
            said = quantization_in({"quantization_config": _read(folder / name) or {"": name}})
    return said or _odd_type(folder)


def quantization_in(config: Mapping[str, Any]) -> str | None:
    """The same from a config.json; a vision-language model may say it of its language part."""
    for part in (config, config.get("text_config")):
        if not isinstance(part, Mapping):
            continue
        section = next((part[name] for name in _SECTIONS if part.get(name)), None)
        if isinstance(section, Mapping):
            inner = section.get("quantization")
            return _named({**section, **inner} if isinstance(inner, Mapping) else section)
        if section is not None:
            return str(section)
    return None


def _named(section: Mapping[str, Any]) -> str:
    said = [str(section[name]) for name in _METHODS if isinstance(section.get(name), str)]
    bits = section.get("bits", section.get("w_bit"))
    if section.get("load_in_4bit"):
        bits = 4
    said += [f"{bits} bit"] if isinstance(bits, int) and not isinstance(bits, bool) else []
    return ", ".join(said) or f"config.json says {json.dumps(dict(section))[:80]}"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return read_json_object(path)
    except OSError:
        return {}


def _odd_type(folder: Path) -> str | None:
    """A weight of 8 bit and less, though nothing says so."""
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in (tensors(path) or {}).items():
            is_weight = len(tensor.shape) > 1 and "weight" in name.rpartition(".")[2]
            if tensor.dtype.startswith(("F8_", "F6_", "F4")) or (
                is_weight and tensor.dtype in _WHOLE
            ):
                return f"{name} is of type {tensor.dtype}"
    return None
