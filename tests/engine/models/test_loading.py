"""A folder that loads and is not the model it says: refused with the tensor, or said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.contract.errors import RLLoopError
from engine.models.policy import build
from tests.engine.models.edited import edited, with_layer, with_number


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(
    ("name", "tensor", "value", "what"),
    [
        ("qwen3", "model.layers.1.mlp.up_proj.weight", float("nan"), "NaN"),
        ("gpt2", "transformer.h.1.mlp.c_fc.bias", float("-inf"), "infinite numbers"),
        ("glm4_moe", "model.layers.1.mlp.gate.e_score_correction_bias", float("nan"), "NaN"),
        ("mamba2", "backbone.layers.0.mixer.A_log", float("inf"), "infinite numbers"),
    ],
)
def test_a_weight_that_is_no_number_is_refused_by_its_tensor(
    tmp_path: Path, name: str, tensor: str, value: float, what: str
) -> None:
    """Before anything trains; a persistent buffer is a weight too."""
    base = edited(name, tmp_path, with_number(tensor, value))

    with pytest.raises(RLLoopError, match=f"^base: .*{tensor.replace('.', '[.]')} holds {what}"):
        build(base, seed=0)


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize(
    ("name", "prefix"), [("llama", "layers."), ("gpt2", ".h."), ("qwen3_moe", "layers.")]
)
def test_weights_of_a_layer_that_the_config_does_not_count_are_refused(
    tmp_path: Path, name: str, prefix: str
) -> None:
    """The first of them are named: half of a model would train."""
    base = edited(name, tmp_path, with_layer(prefix))

    with pytest.raises(RLLoopError, match=rf"config.json does not count: .*{prefix}7\..* more"):
        build(base, seed=0)


def test_other_weights_that_nothing_reads_are_said(tmp_path: Path) -> None:
    """A value head that another trainer left is no reason to refuse the model."""
    base = edited("llama", tmp_path, lambda w: w | {"v_head.summary.weight": torch.ones(1, 32)})
    said: list[tuple[str, str]] = []

    build(base, 0, lambda code, text: said.append((code, text)))

    [(code, text)] = said
    assert code == "UNREAD_WEIGHTS"
    assert "v_head.summary.weight" in text
