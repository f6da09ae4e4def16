"""A checkpoint that cannot answer is refused before its job is queued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from engine.contract.registry import get_kind, validate
from engine.eval_rerun.look import look
from engine.models import lora, tiny
from engine.models.policy import build


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A model that encodes, with a tokenizer beside it."""
    folder = tmp_path / "bert"
    sizes = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(sizes).save_pretrained(folder)
    tiny.build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def other_adapter(tmp_path: Path, base_folder: Path) -> Path:
    """LoRA matrices of a model with other layers."""
    policy = build(str(base_folder), seed=0)
    adapted = lora.attach_zero(policy.model, base=str(base_folder), rank=2, alpha=4, seed=0)
    adapted.base_model.model.model.layers = adapted.base_model.model.model.layers[:1]
    lora.save(adapted, tmp_path / "adapter")
    return tmp_path / "adapter"


def asked(base: Path, **settings: Any) -> Any:
    rows = [{"source": "embedded:addition", "verifier": "exact"}]
    return validate("eval_rerun", {"base": str(base), "benches": rows} | settings)


def test_a_checkpoint_of_another_architecture_is_refused_by_name(bert: Path) -> None:
    """`AutoModelForCausalLM` would say it after the lane was taken."""
    config = asked(bert)

    [problem] = look(config).problems

    assert problem.field == "base"
    assert problem.value == str(bert)
    kind = get_kind("eval_rerun")
    assert kind.look is not None
    assert kind.look.asks(config)["base"] == str(bert)


def test_an_adapter_of_another_base_is_refused_by_name(
    base_folder: Path, other_adapter: Path
) -> None:
    """By the names of its tensors, under the checkpoint that it is."""
    config = asked(base_folder, checkpoints=[str(base_folder), str(other_adapter)])

    [problem] = look(config).problems

    assert problem.field == "checkpoints.1.adapter_init"


def test_a_model_that_answers_is_not_asked_about(base_folder: Path) -> None:
    """No process starts for it."""
    kind = get_kind("eval_rerun")

    assert kind.look is not None
    assert kind.look.asks(asked(base_folder)) == {}
