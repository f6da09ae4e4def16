"""A model's or an adapter's folder before anything loads it: regular files, of a size that can be
read, whose JSON is JSON.

A loader would wait for ever for whoever writes into a pipe, and read a document of any size. Knows
no architecture.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.contract.documents import (
    MAX_JSON_BYTES,
    UnreadableError,
    opened,
    parse_json,
    read_json_object,
    why,
)
from engine.contract.errors import ConfigProblem
from engine.contract.sources.file_looks import once_a_file

_OBJECTS = frozenset(
    {
        *("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json"),
        *("special_tokens_map.json", "added_tokens.json", "chat_template.json"),
        *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
    }
)
"""JSON that loaders read, beside the index of the weights: each is an object."""
_LARGE = frozenset({"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"})
"""As large as a vocabulary, and read by the tokenizer's own library alone."""
_WEIGHTS = frozenset({".safetensors", ".bin"})
_MOST_LARGE = 1024**3


def folder_problems(
    field: str, folder: Path, *, marker: str, what: str, weights: Sequence[str] = ("*.safetensors",)
) -> Sequence[ConfigProblem]:
    """What is wrong with a folder that a setting names: `marker` says what it is, `weights` how
    the files are called that hold it.
    """
    if not folder.is_dir():
        return [ConfigProblem(field, str(folder), "does not exist", f"name a {what} folder")]
    if not (folder / marker).exists():
        problem = f"is no {what} folder: {marker} is missing"
        return [ConfigProblem(field, str(folder), problem, f"name a folder saved as a {what}")]
    try:
        wrong = next(filter(None, map(_wrong, sorted(folder.iterdir()))), None)
    except OSError as error:
        wrong = f"it {why(error)}"
    if wrong is not None:
        problem = f"is no {what} folder that can be read: {wrong}"
        return [ConfigProblem(field, str(folder), problem, "put that file right, or name another")]
    if not any(any(folder.glob(pattern)) for pattern in weights):
        problem = f"is no {what} folder: it holds no weights"
        return [ConfigProblem(field, str(folder), problem, f"name a folder with {weights[0]}")]
    packed = None if marker == "adapter_config.json" else packed_in(folder)
    return [] if packed is None else [few_bits_problem(field, str(folder), packed)]


def few_bits_problem(field: str, name: str, packed: str) -> ConfigProblem:
    """Weights that no run here trains: how they are packed, and where that is said."""
    problem = f"has weights quantized {packed}"
    remedy = "name the 16-bit model that it was made from, or dequantize it and save that"
    return ConfigProblem(field, name, problem, remedy)


def packed_in(folder: Path) -> str | None:
    """How the weights of a model's folder are packed, and where that is said; None for plain ones.

    Not every tool writes it into config.json: then a file of the tool's own says it, or the types
    of the tensors do. Raises OSError for a config.json that cannot be read.
    """
    return (
        packed_by_config(read_json_object(folder / "config.json"))
        or next(filter(None, (_said_by(folder / name) for name in _TOOLS)), None)
        or next(filter(None, map(_packed_tensor, sorted(folder.glob("*.safetensors")))), None)
    )


_TOOLS = {
    "hf_quant_config.json": "ModelOpt",
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
    "quanto_qmap.json": "Quanto",
}
"""File beside config.json → whose it is, where it does not name its method."""


def _said_by(path: Path) -> str | None:
    """What a tool's own file says of the weights."""
    try:
        told = read_json_object(path)
    except FileNotFoundError:
        return None
    except OSError:
        told = {}  # it is there, and says no more
    part = told.get("quantization")
    if isinstance(part, Mapping) and part.get("quant_algo", part) is None:
        return None  # ModelOpt: the cache of keys and values alone
    named = part.get("quant_algo") if isinstance(part, Mapping) else told.get("quant_method")
    return f"by {named if isinstance(named, str) else _TOOLS[path.name]} ({path.name})"


def packed_by_config(config: Mapping[str, Any]) -> str | None:
    """What a model's config says of how its weights are packed; None for plain ones.

    >>> packed_by_config({"text_config": {"quantization_config": {"quant_method": "fp8"}}})
    'by fp8 (config.json: quantization_config)'
    """
    for part in (config, config.get("text_config")):
        for name in ("quantization_config", "compression_config"):
            told = part.get(name) if isinstance(part, Mapping) else None
            if isinstance(told, Mapping) and told:
                # An older bitsandbytes says its bits and no method.
                by_bits = "bitsandbytes" if {"load_in_4bit", "load_in_8bit"} & {*told} else name
                method = told.get("quant_method", by_bits)
                return f"by {getattr(method, 'value', method)} (config.json: {name})"
    return None


def asks_for_weights(base: str) -> bool:
    """Whether only whoever builds the model can tell that a folder holds it: the names of its
    weights seem more than its config asks for, or its architecture is not said to be causal.
    """
    folder = Path(base)
    if not folder.is_absolute() or not folder.is_dir():
        return False
    return counts_fewer_layers(folder) or _is_of_another_kind(folder)


def _is_of_another_kind(folder: Path) -> bool:
    """A model that sees or classifies, by its config's own word."""
    try:
        named = read_json_object(folder / "config.json").get("architectures")
    except OSError:
        return False  # said of the folder
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return bool(names) and not any(name.endswith(_CAUSAL) for name in names)


_CAUSAL = ("ForCausalLM", "LMHeadModel")


def counts_fewer_layers(folder: Path) -> bool:
    """Whether a model's files hold layers beyond those that its config counts, as far as names
    tell: worth a look by whoever knows the architecture.
    """
    try:
        config = read_json_object(folder / "config.json")
        indexes = sorted(folder.glob("*.safetensors.index.json"))
        files = [] if indexes else sorted(folder.glob("*.safetensors"))
        last = max((_last_layer(path) for path in (*indexes, *files)), default=-1)
    except OSError:
        return False  # said elsewhere
    counted = _counted_layers(config)
    return counted is not None and last >= counted and last not in predicted_layers(config)


def _counted_layers(config: Mapping[str, Any]) -> int | None:
    for part in (config, config.get("text_config")):
        for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
            found = part.get(name) if isinstance(part, Mapping) else None
            if isinstance(found, int):
                return found
    return None


def predicted_layers(config: Mapping[str, Any]) -> range:
    """Layers that some models keep behind their own ones, to predict further tokens."""
    counted = _counted_layers(config) or 0
    ahead = config.get("num_nextn_predict_layers")
    return range(counted, counted + (ahead if isinstance(ahead, int) else 0))


@once_a_file
def _packed_tensor(path: Path) -> str | None:
    """The first tensor of a file of weights whose type a packed weight has."""
    try:
        tensors = _header(path)
    except OSError:
        return None  # said elsewhere
    for name, tensor in tensors.items():
        dtype = str(tensor.get("dtype")) if isinstance(tensor, Mapping) else ""
        if dtype.startswith(_FEW_BITS) or (dtype in _WHOLE and _WEIGHT.search(name)):
            return f"to few bits ({path.name}: {name} is {dtype})"
    return None


_FEW_BITS = ("F8_", "F6_", "F4")
_WHOLE = frozenset({"I8", "U8", "I16", "U16", "I32", "U32"})
"""Plain models have masks, positions and tables of such types, and no weight."""
_WEIGHT = re.compile(r"(weight|packed|_blocks|W_q|_proj|\bw[123])$")


@once_a_file
def _last_layer(path: Path) -> int:
    """Of an index or a file of weights. Raises OSError."""
    found = _LAYER.findall("\n".join(_tensors(path)))
    return max(map(int, found), default=-1)


_LAYER = re.compile(r"^(?:\w+\.){0,3}(?:layers|h|blocks)\.(\d+)\.", re.MULTILINE)


def _tensors(path: Path) -> Collection[str]:
    """Names, of a file of weights from its header alone. Raises OSError."""
    is_index = path.suffix == ".json"
    told = read_json_object(path).get("weight_map") if is_index else _header(path)
    return told.keys() if isinstance(told, dict) else ()


def _header(path: Path) -> Mapping[str, Any]:
    """What a safetensors file holds, by name: 8 bytes of length, then JSON. Raises OSError."""
    with opened(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > MAX_JSON_BYTES:
            raise UnreadableError("has a header of a size that is not read")
        told = parse_json(stream.read(length))
    return told if isinstance(told, dict) else {}


def is_bare_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter alone, where a whole model is looked for."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").exists()


def _wrong(entry: Path) -> str | None:
    """What is wrong with one entry of the folder, with its name in front."""
    is_json = entry.name in _OBJECTS or entry.name.endswith(".index.json")
    is_large = entry.name in _LARGE or entry.suffix in {".jinja", ".model"}
    if not (is_json or is_large or entry.suffix in _WEIGHTS):
        return None  # no loader looks at it
    try:
        found = entry.stat()
    except OSError:
        return None  # a link that leads nowhere: missing, as its reader will say
    reason = None
    if not stat.S_ISREG(found.st_mode):
        reason = "is no regular file"
    elif is_large and found.st_size > _MOST_LARGE:
        reason = f"has {found.st_size / 1e9:.3g} GB"
    elif is_json:
        reason = _no_json(entry)
    return None if reason is None else f"{entry.name} {reason}"


@once_a_file
def _no_json(path: Path) -> str | None:
    """Why a file is no JSON object; None for one that is."""
    try:
        read_json_object(path)
    except OSError as error:
        return why(error)
    return None
