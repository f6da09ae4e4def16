"""LoRA over the architectures that Transformers builds: what it reaches, and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from engine.models import lora, tiny
from engine.models.policy import build
from tests.engine.models import zoo

IDS = torch.arange(3, 15)[None]
STATE_SPACE = {"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"}
"""PEFT adapts no `out_proj` of these: their kernels read the bare weight."""


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS, use_cache=False).logits
    return found


def moved(model: Any) -> Any:
    """Training, in one line."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.mark.requirement("RL-07")
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_an_adapter_starts_at_the_base_learns_and_is_the_same_for_peft_and_merged(
    tmp_path: Path, name: str, dora: bool
) -> None:
    """Of every architecture: nothing changes at first, each matrix gets a gradient, and folder and
    merged weights give the logits in memory.
    """
    folder = zoo.saved(name, tmp_path / "base", tiny.build_tokenizer())
    policy = build(str(folder), seed=0)
    before = logits(policy.model)

    adapted = lora.attach_zero(policy.model, rank=4, alpha=8, seed=0, dora=dora, base="it")
    torch.testing.assert_close(logits(adapted), before, atol=1e-5, rtol=0)

    found = lora.coverage(adapted)
    assert found.share > (0.6 if name in STATE_SPACE else 0.1 if dora else 0.92), found
    moved(adapted)
    adapted(input_ids=IDS, use_cache=False).logits.pow(2).sum().backward()
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    assert all("lora_" in n for n in trained)
    without = [n for n, p in trained.items() if p.grad is None or not p.grad.any()]
    assert not without
    wanted = logits(adapted)
    assert not torch.allclose(wanted, before, atol=1e-3)

    lora.save(adapted, tmp_path / "adapter")
    with lora.without_deprecations():
        base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        plain = PeftModel.from_pretrained(base.eval(), tmp_path / "adapter")
    torch.testing.assert_close(logits(plain), wanted, atol=1e-4, rtol=1e-4)
    again = lora.attach(build(str(folder), seed=0).model, tmp_path / "adapter")
    torch.testing.assert_close(logits(again), wanted, atol=1e-5, rtol=0)
    whole = lora.merged(build(str(folder), seed=0).model, tmp_path / "adapter")
    torch.testing.assert_close(logits(whole), wanted, atol=1e-3, rtol=1e-3)
