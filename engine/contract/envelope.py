"""The memory envelope: what a job will need at most, before anything of it is loaded.

Arithmetic on a config and on what a model folder says about itself (config.json, the headers of
its safetensors files); torch-free. Close to the truth for the large parts (weights, optimizer,
KV cache, logits); activations and the runtime are rules of thumb. The worker corrects the sum by
what earlier runs really used. GB are 10⁹ bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from engine.contract.documents import opened, parse_json, read_json_object

FP32 = 4
ADAM_MOMENTS = 2
RUNTIME_GB = 0.45
"""Interpreter, torch and transformers with nothing loaded yet."""
SERVER_RUNTIME_GB = 1.7
"""vLLM with nothing loaded yet, its engine core and its API server together; measured on a CPU."""
GIB = 2**30
_MAX_HEADER = 100 * 1024 * 1024
_LARGEST = 2**63
"""Of a size or a count: arithmetic with more of it overflows."""


class Envelope(BaseModel):
    """What a job needs at most, in GB, part by part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    reference: float = 0.0
    """The frozen step-0 policy that the KL term is measured against."""
    kv_cache: float = 0.0
    logits: float = 0.0
    activations: float = 0.0
    proof: float = 0.0
    """The first checkpoint read again before step 1, before there are moments and gradients."""
    serving: float = 0.0
    """A server beside the trainer, which keeps all it has all the time."""
    runtime: float = RUNTIME_GB

    @property
    def total(self) -> float:
        """The most that is in use at once: proof, sampling and training take turns."""
        sampling = self.optimizer + self.kv_cache
        training = self.optimizer + self.gradients + self.logits + self.activations
        fixed = self.weights + self.reference + self.serving + self.runtime
        return fixed + max(self.proof, sampling, training)

    def of_ranks(self, ranks: int) -> Self:
        """Of so many learner processes, each with all of it; they share one server."""
        alone = {"serving": self.serving}
        return type(self)(**{n: v * ranks for n, v in self.model_dump().items()} | alone)

    def parts(self) -> dict[str, float]:
        """Each part in GB, to be shown."""
        return {name: round(value, 3) for name, value in self.model_dump().items()}


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only language model."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of_config(cls, config: Mapping[str, Any], parameters: int | None = None) -> Self | None:
        """From a config.json; `parameters` as counted, else computed. None when sizes are missing.

        A vision-language model keeps the sizes of its language part under `text_config`.
        """
        text = config.get("text_config")
        sizes = {**config, **text} if isinstance(text, Mapping) else config
        try:
            hidden, layers = int(sizes["hidden_size"]), int(sizes["num_hidden_layers"])
            heads = int(sizes["num_attention_heads"])
            shape = cls(
                parameters=parameters or 0,
                layers=layers,
                hidden=hidden,
                intermediate=int(sizes.get("intermediate_size") or 4 * hidden),
                heads=heads,
                kv_heads=int(sizes.get("num_key_value_heads") or heads),
                head_dim=int(sizes.get("head_dim") or hidden // heads),
                vocabulary=int(sizes["vocab_size"]),
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None
        if not all(0 <= size <= _LARGEST for size in asdict(shape).values()):
            return None
        if parameters:
            return shape
        tied = bool(sizes.get("tie_word_embeddings"))
        embeddings = shape.vocabulary * shape.hidden * (1 if tied else 2)
        return cls(**{**shape.__dict__, "parameters": embeddings + shape.linear_parameters})

    @classmethod
    def of_folder(cls, folder: Path) -> Self | None:
        """From a Hugging Face model folder; None when it says too little."""
        try:
            config = read_json_object(folder / "config.json")
        except OSError:
            return None
        return cls.of_config(config, _parameters(folder))

    @property
    def linear_parameters(self) -> int:
        """Weights of the linear layers: attention and a gated MLP."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    def lora_parameters(self, rank: int) -> int:
        """Weights of LoRA matrices on every linear layer: rank × (in + out) each."""
        query = self.heads * self.head_dim
        key = self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + query) + 2 * (self.hidden + key)
        return self.layers * rank * (sides + 3 * (self.hidden + self.intermediate))

    def kv_bytes(self, tokens: int, width: int = FP32) -> int:
        """Keys and values of so many tokens."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * width

    def served_kv_gib(self, tokens: int, width: int = FP32) -> int:
        """Whole GiB of keys and values that a server needs for so many tokens at once."""
        return max(1, math.ceil(self.kv_bytes(tokens, width) / GIB))

    def served_gb(self, tokens: int, width: int = FP32) -> float:
        """A server's own copy of the weights, its keys and values, and the program."""
        weights = gigabytes(self.parameters * width)
        return weights + gigabytes(self.served_kv_gib(tokens, width) * GIB) + SERVER_RUNTIME_GB

    def activation_bytes(self, tokens: int, *, checkpointing: bool, width: int = FP32) -> int:
        """What a backward pass over so many tokens keeps, attention by blocks (no score matrix).

        Counted after Korthikanti et al. (arXiv:2205.05198, Eq. 2 without the score terms): about
        16 numbers of the hidden size a token and layer, and the three products of the gated MLP.
        """
        a_layer = 16 * self.hidden + 4 * self.intermediate
        if checkpointing:
            return tokens * width * (self.layers * self.hidden + a_layer)
        return tokens * width * self.layers * a_layer


class Checkpoints(NamedTuple):
    """What a run writes to the disk of its run directory, in GB."""

    each: float
    kept: int
    """At once, the one that is being written among them. Those of gates stay too, but only while
    the disk has room to spare (engine/run/retention.py)."""
    written: int
    """Over the whole run."""

    @property
    def most(self) -> float:
        """On the disk at once."""
        return self.each * min(self.kept, self.written)

    @property
    def total(self) -> float:
        """Written over the whole run."""
        return self.each * self.written


def gigabytes(count: float) -> float:
    """Bytes as GB."""
    return count / 1e9


def _parameters(folder: Path) -> int | None:
    """Weights in a folder's safetensors files; None when there are none to count."""
    counts = [_in_file(path) for path in sorted(folder.glob("*.safetensors"))]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _in_file(path: Path) -> int | None:
    """Sum of the tensors' sizes from the JSON header: 8 bytes of length, then the header."""
    try:
        with opened(path) as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MAX_HEADER:
                return None
            header = parse_json(stream.read(length))
        return sum(math.prod(shape) for shape in _shapes(header))
    except (OSError, ValueError, struct.error, TypeError, AttributeError, LookupError):
        return None


def _shapes(header: Mapping[str, Any]) -> Iterator[list[int]]:
    for name, tensor in header.items():
        if name != "__metadata__":
            yield tensor["shape"]
