"""The 16-bit model that the formats are made of: the base with its adapter in its own weights.

Merged in fp32 and rounded once, into the base's own 16-bit type: to merge into a quantized base
would round the adapter away (peft#2321, transformers#31293).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from peft import get_peft_model_state_dict
from torch import Tensor

from engine.contract.base_model import EMBEDDED_BASES
from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig
from engine.models import lora
from engine.models.alike import apart
from engine.models.chat import Clock
from engine.models.forward import forward
from engine.models.loading import saved_type
from engine.models.policy import Policy, build, require_finite, take_template
from engine.run.checkpoint import verified

_READ = 4
"""Prompts that the model is read with before and after the merge."""

Prompts = Callable[[Policy], Sequence[Sequence[int]]]


def require_whole(config: RequantConfig, warn: Callable[[str, str], None]) -> None:
    """Raises RLLoopError for a checkpoint of a run whose files are not what it was written with."""
    checkpoint = config.checkpoint
    if checkpoint is not None and verified(checkpoint, warn) is None:
        problem = "is damaged: a file of it is gone or has changed since it was written"
        raise RLLoopError.of("base", str(checkpoint), problem, "name another step of that run")


def write_merged(config: RequantConfig, target: Path, prompts: Prompts, clock: Clock) -> float:
    """A Transformers folder with the tokenizer; how far the merge moved log-probabilities, in nats.

    Raises RLLoopError for a model that cannot be loaded, and an adapter of another base.
    """
    policy = build(config.base, config.base_seed)
    take_template(policy, config.prompting, clock)
    gap = 0.0
    if config.adapter_init is not None:
        policy.model = lora.attach_folder(policy.model, config.adapter_init).eval()
        state = get_peft_model_state_dict(policy.model, save_embedding_layers=False)
        require_finite("adapter_init", config.adapter_init, state)
        texts = prompts(policy)[:_READ]
        before = _logits(policy, texts)
        policy.model = policy.model.merge_and_unload()
        gap = apart(before, _logits(policy, texts))
    policy.model.to(sixteen_bit(config.base))
    policy.save(target.parent)
    return gap


def _logits(policy: Policy, texts: Sequence[Sequence[int]]) -> list[Tensor]:
    """[T, V] of each text."""
    with torch.inference_mode():
        ids = [torch.tensor([text], device=policy.device) for text in texts]
        return [forward(policy.model, input_ids=one, use_cache=False)[0].cpu() for one in ids]


def sixteen_bit(base: str) -> torch.dtype:
    """The base's own type where that has 16 bits, else bfloat16, which loses no range."""
    if base in EMBEDDED_BASES:
        return torch.bfloat16
    return torch.float16 if saved_type(base) == torch.float16 else torch.bfloat16


def short(folder: Path) -> str:
    """What people call the type of a model's weights: `bf16`."""
    return "fp16" if saved_type(str(folder)) == torch.float16 else "bf16"
