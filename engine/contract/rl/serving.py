"""What an `rl_run` cannot ask of a serving lane: said when it is enqueued.

Knows settings; starts nothing and asks no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.contract.errors import ConfigProblem
from engine.contract.rl.sampling import SamplingConfig

MAX_LORA_RANK = 512
MAX_TEMP = 2.0
"""The largest that vLLM takes."""


class Knobs(Protocol):
    """What of an `rl_run` config decides here."""

    @property
    def rollout_backend(self) -> str: ...
    @property
    def tuning(self) -> str: ...
    @property
    def lora_rank(self) -> int: ...
    @property
    def temp(self) -> float: ...
    @property
    def heldout_temp(self) -> float: ...
    @property
    def sampling(self) -> SamplingConfig: ...


def serving_problems(config: Knobs) -> Sequence[ConfigProblem]:
    """One entry a setting that does not go with `rollout_backend: vllm`."""
    if config.rollout_backend != "vllm":
        return []
    found: list[ConfigProblem] = []
    if config.tuning != "lora":
        found.append(
            ConfigProblem(
                "tuning",
                config.tuning,
                "does not go with rollout_backend: vllm, which is sent LoRA adapters alone",
                "set tuning: lora, or rollout_backend: hf",
            )
        )
    elif config.lora_rank > MAX_LORA_RANK:
        found.append(
            ConfigProblem(
                "lora_rank",
                config.lora_rank,
                f"is more than vLLM serves with rollout_backend: vllm ({MAX_LORA_RANK})",
                "lower it, or set rollout_backend: hf",
            )
        )
    for field, temp in (("temp", config.temp), ("heldout_temp", config.heldout_temp)):
        if temp > MAX_TEMP:
            found.append(
                ConfigProblem(
                    field,
                    temp,
                    f"is more than vLLM takes with rollout_backend: vllm ({MAX_TEMP:g})",
                    "lower it, or set rollout_backend: hf",
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


def stacks_problem(folder: str) -> ConfigProblem:
    """Of an adapter with `target_parameters`, or one that PEFT puts on stacked experts."""
    problem = (
        "is of stacked experts (target_parameters) too, which goes with no rollout_backend: vllm"
    )
    return ConfigProblem("adapter_init", folder, problem, "set rollout_backend: hf")
