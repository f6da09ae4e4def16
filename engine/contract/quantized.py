"""Formats of few bits that a model can be written in: who writes each, and where it computes.

Knows names and libraries alone; the engine's folder `requant` writes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from engine.contract.errors import ConfigProblem
from engine.contract.problems import nearest
from engine.contract.section import Section

QUANT_PYTHON = "NIGHTLANE_QUANT_PYTHON"
"""Python of the environment that holds llmcompressor, which wants other versions than ours."""

Library = Literal["torchao", "gguf", "llmcompressor"]


class Format(NamedTuple):
    """One of them."""

    library: Library
    bits: int
    """Of a quantized weight."""
    says: str
    runs_on: frozenset[str] = frozenset()
    """Kinds of device that compute in this format once it is read back here; elsewhere its weights
    are made 16-bit again, and its speed would say nothing."""
    grouped: bool = False
    """A scale for each group of weights along a row, which must divide the row."""


_CPU_AND_GPU = frozenset({"cpu", "cuda"})
FORMATS: Mapping[str, Format] = {
    "int8": Format("torchao", 8, "int8 weights, a scale for each output", _CPU_AND_GPU),
    "int4": Format("torchao", 4, "int4 weights in groups", frozenset({"cuda"}), grouped=True),
    "fp8": Format("torchao", 8, "float8 (e4m3) weights", frozenset({"cuda"})),
    "gguf_q8_0": Format("gguf", 8, "GGUF Q8_0, for llama.cpp"),
    "gguf_q4_0": Format("gguf", 4, "GGUF Q4_0, for llama.cpp"),
    "w8a8": Format("llmcompressor", 8, "int8 weights and activations, for vLLM"),
    "w8a16": Format("llmcompressor", 8, "int8 weights in groups, for vLLM", grouped=True),
    "w4a16": Format("llmcompressor", 4, "int4 weights in groups, for vLLM", grouped=True),
    "fp8_dynamic": Format("llmcompressor", 8, "float8 weights and activations, for vLLM"),
}

GGUF_ARCHITECTURES: Mapping[str, str] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""As config.json says it → as a GGUF file says it. SmolLM is a llama."""

_READERS: Mapping[Library, Sequence[str]] = {
    "torchao": ("torchao",),
    "gguf": ("gguf",),
    "llmcompressor": ("compressed-tensors",),
}
"""What must be installed here to read a library's format back."""


def _known_format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"{name!r} is no format; {nearest(name, list(FORMATS))}")
    return name


FormatName = Annotated[str, AfterValidator(_known_format)]


class QuantizeConfig(Section):
    """Into which formats a model is quantized."""

    formats: list[FormatName] = Field(min_length=1, max_length=len(FORMATS))
    """`int8`, `int4`, `fp8` (torchao); `gguf_q8_0`, `gguf_q4_0` (llama.cpp); `w8a8`, `w8a16`,
    `w4a16`, `fp8_dynamic` (llmcompressor, for vLLM)."""
    group_size: Literal[32, 64, 128] | None = None
    """Weights that share a scale in `int4`, `w8a16` and `w4a16`; without one the largest of 128, 64
    and 32 that leaves the fewest weights in 16 bit."""


def quantize_problems(field: str, formats: Sequence[str]) -> list[ConfigProblem]:
    """Formats named twice, and libraries that are not here."""
    twice = next((name for name in formats if formats.count(name) > 1), None)
    found = []
    if twice is not None:
        found.append(ConfigProblem(field, twice, "is named twice", "name it once"))
    libraries = dict.fromkeys(FORMATS[name].library for name in formats)
    lacking = [(library, *lacks) for library in libraries if (lacks := _lacks(library))]
    for library, problem, remedy in lacking:
        first = next(name for name in formats if FORMATS[name].library == library)
        found.append(ConfigProblem(field, first, problem, remedy))
    return found


def _lacks(library: Library) -> tuple[str, str] | None:
    """(problem, remedy) of a library whose formats cannot be written or read back here."""
    for package in _READERS[library]:
        try:
            version(package)
        except PackageNotFoundError:
            return f"needs {package}, which is not installed", "pip install 'nightlane[quant]'"
    return _no_environment() if library == "llmcompressor" else None


def _no_environment() -> tuple[str, str] | None:
    told = os.environ.get(QUANT_PYTHON, "")
    remedy = f"make setup-quant, then set {QUANT_PYTHON} to its .venv-quant/bin/python"
    if not told:
        return f"needs llmcompressor in an environment of its own, and {QUANT_PYTHON} is not set", (
            f"{remedy}, or leave this format out"
        )
    if not Path(told).is_file():
        return f"needs llmcompressor, and {QUANT_PYTHON} names no file: {told}", remedy
    return None
