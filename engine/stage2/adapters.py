"""Low-rank matrices on the language tower, and a checkpoint merged back into whole weights.

LoRA (Hu 2021, arXiv:2106.09685) or DoRA (Liu 2024, arXiv:2402.09353) on every linear layer of the
text decoder; the vision tower and the embeddings stay as stage 1 left them. Knows no training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.contract.stage2.config import ModelConfig
from engine.models.qwen3_vl import ModelError, VisionModel

LANGUAGE_LINEARS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


@contextmanager
def older_names() -> Iterator[None]:
    """PEFT asks Transformers by a name that is about to go; nobody here can change that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        yield


def with_adapter(vlm: VisionModel, config: ModelConfig, seed: int) -> VisionModel:
    """The model to train as `tuning` says. Adapter matrices are drawn by the seed."""
    if config.tuning == "full":
        return vlm
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - seconds to import

    made = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        use_dora=config.tuning == "dora",
        target_modules=LANGUAGE_LINEARS,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = vlm.model
        try:
            with older_names():
                wrapped = get_peft_model(model, made)
        except ValueError as error:
            raise ModelError(
                f"model.tuning {config.tuning!r}: {error}; set model.tuning: full"
            ) from error
    return VisionModel(wrapped, vlm.tokenizer, vlm.image_processor)
