"""Settings of a valid config that this run will not read, because another one switches them off.

They may stand there, for a config is changed one setting at a time; whoever sends it hears of them.
Knows no file and no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from engine.contract.errors import ConfigProblem
from engine.contract.stage2.config import Stage2Config

_ROLLOUTS = "custom.extra.rollout_matching"


def unread(config: Stage2Config) -> Iterator[ConfigProblem]:
    """Those that differ from their defaults."""
    for names, is_off, remedy in _switched(config):
        for name in names if is_off else ():
            value, default = _value_and_default(config, name)
            if value != default:
                shown = None if isinstance(value, BaseModel) else value
                yield ConfigProblem(name, shown, "is not read", remedy)


def _switched(config: Stage2Config) -> Iterator[tuple[tuple[str, ...], bool, str]]:
    """Settings, whether nothing reads them, and what to do."""
    training, model = config.training, config.model
    rollouts, ab = config.custom.extra.rollout_matching, config.stage2_ab
    packs = (
        "training.packing_buffer",
        "training.packing_min_fill_ratio",
        f"{_ROLLOUTS}.post_rollout_pack_scope",
    )
    yield packs, not training.packing, "set training.packing: true, or leave it out"
    yield (
        ("model.lora_rank", "model.lora_alpha"),
        model.tuning == "full",
        "set model.tuning: dora or lora, or leave it out",
    )
    yield (
        (f"{_ROLLOUTS}.decoding.top_p", f"{_ROLLOUTS}.decoding.top_k"),
        rollouts.decoding.temperature == 0,
        f"set {_ROLLOUTS}.decoding.temperature over 0 (greedy), or leave it out",
    )
    yield (
        (f"{_ROLLOUTS}.vllm",),
        rollouts.rollout_backend == "hf",
        f"leave it out: it belongs to {_ROLLOUTS}.rollout_backend: vllm",
    )
    yield (
        ("custom.coord_soft_ce_w1", f"{_ROLLOUTS}.desc_ce_weight"),
        ab is not None,
        "leave it out: it belongs to trainer_variant: rollout_matching_sft",
    )
    if ab is not None:
        yield (
            ("stage2_ab.softctx_temperature", "stage2_ab.softctx_grad_mode"),
            ab.n_softctx_iter == 1,
            "set stage2_ab.n_softctx_iter: 2, or leave it out",
        )


def _value_and_default(config: Stage2Config, name: str) -> tuple[Any, Any]:
    section: Any = config
    *path, last = name.split(".")
    for part in path:
        section = getattr(section, part)
    field = type(section).model_fields[last]
    value = getattr(section, last)
    if isinstance(value, BaseModel):
        return value, type(value)()
    return value, field.default
