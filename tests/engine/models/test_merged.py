"""Weights for a server: those of the merged model's folder, the trainer's own untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from engine.models import lora, tiny
from engine.models.merged import MergedWeights
from engine.stage2.embedded import tiny_vl
from tests.engine.models import zoo


def moved(model: Any, *, dora: bool) -> Any:
    """With an adapter that changes every layer it reaches."""
    adapted = lora.attach_zero(model, rank=2, alpha=4, seed=1, dora=dora, base="x")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return adapted


def saved(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    """As a folder holds them."""
    model.save_pretrained(folder)
    found: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


def build(name: str, folder: Path) -> Any:
    """Loaded from a folder, as a trainer has it: that is how a model knows its names on disk."""
    if name == "qwen3_vl":
        tokenizer = tiny_vl.build_tokenizer()
        tiny_vl.build_model(0, tokenizer, hidden=64, layers=2).save_pretrained(folder)
        return AutoModelForImageTextToText.from_pretrained(folder)
    zoo.saved(name, folder, tiny.build_tokenizer())
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.requirement("RM-06")
@pytest.mark.parametrize(
    ("name", "tuning"),
    [
        *((name, "lora") for name in (*zoo.ZOO, "qwen3_vl")),
        *((name, "dora") for name in ("qwen3", "gpt2", "qwen3_vl")),
        *((name, "full") for name in ("qwen3", "gpt_oss", "mixtral", "qwen3_vl")),
    ],
)
def test_they_are_those_that_the_merged_model_would_be_saved_with(
    tmp_path: Path, name: str, tuning: str
) -> None:
    """Name by name and bit by bit, tied ones once; and nothing of the trainer's has changed."""
    model = build(name, tmp_path / "base")
    if tuning != "full":
        model = moved(model, dora=tuning == "dora")
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}

    sent = {key: tensor.clone() for key, tensor in MergedWeights(model)}

    after = model.state_dict()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    wanted = saved(model if tuning == "full" else model.merge_and_unload(), tmp_path / "merged")
    assert set(sent) == set(wanted)
    assert [key for key, tensor in wanted.items() if not torch.equal(sent[key], tensor)] == []
