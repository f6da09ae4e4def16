"""What a stage-2 run cannot ask of its servers: said when it is enqueued.

Knows settings; starts nothing and asks no server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.contract.errors import ConfigProblem
from engine.contract.served import MAX_LORA_RANK, MAX_PENALTY, MAX_TEMP
from engine.contract.stage2.config import Stage2Config, world_size_problems

_ROLLOUTS = "custom.extra.rollout_matching"
_MODE = f"{_ROLLOUTS}.vllm.sync.mode"


def serving_problems(config: Stage2Config) -> Sequence[ConfigProblem]:
    """One entry a setting that does not go with `rollout_backend: vllm`."""
    return [*_problems(config)] if config.serves else []


def serving_cautions(config: Stage2Config) -> Iterator[ConfigProblem]:
    """What a run does otherwise than it says, by a rule of its own."""
    sync = config.custom.extra.rollout_matching.vllm.sync
    if config.serves and _sends_adapters(config) and config.model.tuning == "dora":
        yield ConfigProblem(
            _MODE,
            sync.mode,
            "sends LoRA adapters, and vLLM takes none of DoRA: the run falls back to full sync",
            "set sync.mode: full",
        )


def _problems(config: Stage2Config) -> Iterator[ConfigProblem]:
    rollouts, model = config.custom.extra.rollout_matching, config.model
    sync = rollouts.vllm.sync
    yield from world_size_problems(config, config.ranks)
    if _sends_adapters(config):
        if model.tuning == "full":
            remedy = "set sync.mode: full, or model.tuning: lora"
            yield ConfigProblem(
                _MODE, sync.mode, "sends LoRA adapters, and model.tuning is full", remedy
            )
        elif model.tuning == "dora" and not sync.fallback_to_full:
            remedy = "set sync.mode: full, or sync.fallback_to_full: true"
            yield ConfigProblem(
                _MODE, sync.mode, "sends LoRA adapters, and vLLM takes none of DoRA", remedy
            )
        elif model.lora_rank > MAX_LORA_RANK:
            yield ConfigProblem(
                "model.lora_rank",
                model.lora_rank,
                f"is more than vLLM serves as an adapter ({MAX_LORA_RANK})",
                "lower it, or set sync.mode: full",
            )
    for name, value, most in (
        ("decoding.temperature", rollouts.decoding.temperature, MAX_TEMP),
        ("repetition_penalty", rollouts.repetition_penalty, MAX_PENALTY),
    ):
        if value > most:
            yield ConfigProblem(
                f"{_ROLLOUTS}.{name}",
                value,
                f"is more than vLLM takes ({most:g})",
                "lower it, or set rollout_backend: hf",
            )


def _sends_adapters(config: Stage2Config) -> bool:
    return config.custom.extra.rollout_matching.vllm.sync_mode == "adapter"
