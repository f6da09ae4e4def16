"""One format written, and read back from the disk as a model that answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig
from engine.contract.quantized import FORMATS, Library
from engine.models.chat import Clock
from engine.models.policy import Policy, eos_ids, take_template
from engine.requant import gguf_file, with_llmcompressor, with_torchao
from engine.requant.tensors import left_out, share_left, stored

Write = Callable[[str, Path, Path, int | None], dict[str, Any]]
_WRITERS: Mapping[Library, Write] = {
    "torchao": with_torchao.write,
    "gguf": gguf_file.write,
    "llmcompressor": with_llmcompressor.write,
}


class AsStored(Policy):
    """A model that computes in the types it is stored in: nothing is cast around its layers."""

    def computing(self) -> AbstractContextManager[Any]:
        return nullcontext()


class ReadBack(NamedTuple):
    """A model from the disk."""

    policy: AsStored
    seconds: float
    """That loading took."""


def require_forms(names: Sequence[str], merged: Path) -> None:
    """Raises RLLoopError for a format that the model cannot be written in, before any of them is
    made.
    """
    if any(FORMATS[name].library == "gguf" for name in names):
        gguf_file.require_form(merged)


def write(name: str, merged: Path, target: Path, group_size: int | None) -> dict[str, Any]:
    """The model of the folder `merged` in a format; which matrices it left in 16 bit, and
    what else is worth knowing. Raises RLLoopError for a format that changed none of them.
    """
    known = _WRITERS[FORMATS[name].library](name, merged, target, group_size)
    before = stored(merged)
    if FORMATS[name].library == "gguf":
        layers = AutoConfig.from_pretrained(merged).num_hidden_layers
        after = gguf_file.stored(target, before, layers)
    else:
        after = stored(target)
        AutoTokenizer.from_pretrained(merged).save_pretrained(target)
    left = left_out(before, after)
    share = share_left(before, left)
    if share == 1:
        widths = sorted({one.shape[-1] for one in before.values() if one.is_matrix})
        problem = f"quantized nothing: no matrix of this model fits it (widths {widths})"
        raise RLLoopError.of("formats", name, problem, "leave it out, or set a smaller group_size")
    return {**known, "left": left, "left_share": round(share, 4)}


def read(folder: Path, merged: Path, config: RequantConfig, clock: Clock) -> ReadBack:
    """With the merged model's tokenizer and its ends."""
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _model(folder, merged).to(device)
    seconds = time.monotonic() - began
    model.generation_config = GenerationConfig.from_pretrained(merged)
    tokenizer: Any = AutoTokenizer.from_pretrained(merged)
    policy = AsStored(
        model.eval(), tokenizer, eos_ids(model, tokenizer), config.step, precision="bf16"
    )
    take_template(policy, config.prompting, clock)
    return ReadBack(policy, seconds)


def _model(folder: Path, merged: Path) -> Any:
    if (folder / gguf_file.FILE).is_file():
        return gguf_file.read(folder, AutoConfig.from_pretrained(merged))
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


def size_of(folder: Path) -> int:
    """Bytes of its weights on the disk."""
    kinds = (".safetensors", ".gguf")
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in kinds)
