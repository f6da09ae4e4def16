"""What an `rl_run` cannot ask of a serving lane: said when it is enqueued.

Knows settings; starts nothing and asks no server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.contract.errors import ConfigProblem
from engine.contract.rl.buffer import BufferConfig
from engine.contract.rl.sampling import SamplingConfig
from engine.contract.served import MAX_LORA_RANK, MAX_TEMP, RunVLLMConfig


class Served(Protocol):
    """What every kind that may be served says."""

    @property
    def rollout_backend(self) -> str: ...
    @property
    def vllm(self) -> RunVLLMConfig: ...
    @property
    def sampling(self) -> SamplingConfig: ...


class Knobs(Served, Protocol):
    """What of an `rl_run` config decides here."""

    @property
    def sends_adapters(self) -> bool: ...
    @property
    def draws_ahead(self) -> bool: ...
    @property
    def buffer(self) -> BufferConfig: ...
    @property
    def tuning(self) -> str: ...
    @property
    def lora_rank(self) -> int: ...
    @property
    def temp(self) -> float: ...
    @property
    def heldout_temp(self) -> float: ...


def serving_problems(config: Knobs) -> Sequence[ConfigProblem]:
    """One entry a setting that does not go with `rollout_backend: vllm`."""
    found: list[ConfigProblem] = []
    if config.rollout_backend == "vllm" and config.sends_adapters and config.tuning != "lora":
        found.append(
            ConfigProblem(
                "vllm.sync.mode",
                config.vllm.sync.mode,
                f"sends LoRA adapters, and tuning is {config.tuning}",
                "set vllm.sync.mode: auto (merged weights), or tuning: lora",
            )
        )
    elif config.sends_adapters and config.lora_rank > MAX_LORA_RANK:
        found.append(
            ConfigProblem(
                "lora_rank",
                config.lora_rank,
                f"is more than vLLM serves as an adapter ({MAX_LORA_RANK})",
                "lower it, or set vllm.sync.mode: full",
            )
        )
    if config.draws_ahead and config.vllm.mode == "colocate":
        found.append(
            ConfigProblem(
                "buffer.max_staleness",
                config.buffer.max_staleness,
                "draws while a step trains, and a colocated engine gives its memory back then",
                "set vllm.mode: server, or buffer.max_staleness: 0",
            )
        )
    temps = {"temp": config.temp, "heldout_temp": config.heldout_temp}
    return [*found, *served_problems(config, temps)]


def served_problems(config: Served, temps: Mapping[str, float]) -> Sequence[ConfigProblem]:
    """Of any kind that a server may answer for; `temps`: its temperatures by field."""
    if config.rollout_backend != "vllm":
        return _unread(config)
    found: list[ConfigProblem] = []
    for field, temp in temps.items():
        if temp > MAX_TEMP:
            found.append(
                ConfigProblem(
                    field,
                    temp,
                    f"is more than vLLM takes with rollout_backend: vllm ({MAX_TEMP:g})",
                    "lower it, or set rollout_backend: hf",
                )
            )
    if config.vllm.server is not None and config.vllm.server.routes == "infer":
        found.append(
            ConfigProblem(
                "vllm.server.routes",
                "infer",
                "takes conversations, and this kind sends token ids",
                "serve with vLLM's OpenAI routes",
            )
        )
    if not config.sampling.plain:
        found.append(
            ConfigProblem(
                "sampling",
                None,
                "reshapes the draw, and a server tells only the reshaped log-probabilities",
                "leave top_p, top_k, min_p and repetition_penalty out, or set rollout_backend: hf",
            )
        )
    return found


def _unread(config: Served) -> Sequence[ConfigProblem]:
    if config.vllm == RunVLLMConfig():
        return []
    problem = f"is read with rollout_backend: vllm alone, and this is {config.rollout_backend}"
    return [ConfigProblem("vllm", None, problem, "set that, or leave vllm out")]


def stacks_problem(folder: str) -> ConfigProblem:
    """Of an adapter with `target_parameters`, or one that PEFT puts on stacked experts."""
    problem = "is of stacked experts (target_parameters) too, and vLLM takes no adapter of those"
    return ConfigProblem("adapter_init", folder, problem, "set vllm.sync.mode: full")
