"""A vision-language folder that loads and is not the model it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.models import qwen3_vl
from engine.models.qwen3_vl import ModelError
from tests.engine.models.edited import Weights, edit, with_layer, with_number


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            with_number("model.language_model.layers.0.mlp.up_proj.weight", float("nan")),
            "layers.0.mlp.up_proj.weight holds NaN",
        ),
        (
            with_number("model.visual.blocks.0.attn.qkv.weight", float("inf")),
            "visual.blocks.0.attn.qkv.weight holds infinite numbers",
        ),
        (with_layer("language_model.layers."), "does not count: model.language_model.layers.7"),
        (with_layer("visual.blocks."), "does not count: model.visual.blocks.7"),
    ],
)
def test_weights_that_are_no_numbers_or_not_counted_are_refused(
    tmp_path: Path, vl_folder: Path, change: Callable[[Weights], Weights], said: str
) -> None:
    """Text and pictures alike; nobody is sent to the learning rate."""
    shutil.copytree(vl_folder, tmp_path / "model")
    edit(tmp_path / "model", change)

    with pytest.raises(ModelError, match=said) as caught:
        qwen3_vl.load(str(tmp_path / "model"), dtype="float32", attn_implementation="sdpa")

    assert "model.path" in str(caught.value)
