"""The embedded Qwen3-VL as a folder, and loading such folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.models.qwen3_vl import ModelError, load
from engine.stage2.embedded import tiny_vl
from engine.stage2.parse.pieces import TokenPieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vl.save(tmp_path_factory.mktemp("vl"), seed=1, hidden=64, layers=2)


def test_the_folder_loads_as_any_qwen3_vl_does(folder: Path) -> None:
    """Transformers' own class, tied embeddings, a tokenizer that stage-2 accepts."""
    vlm = load(str(folder), dtype="float32", attn_implementation="sdpa")

    assert type(vlm.model).__name__ == "Qwen3VLForConditionalGeneration"
    assert vlm.model.get_output_embeddings().weight is vlm.model.get_input_embeddings().weight  # type: ignore[operator]
    assert vlm.merge_area == 4
    assert len(TokenPieces(vlm.tokenizer).coord_ids) == 1000


def test_a_loaded_model_draws_no_bars_into_the_log(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A killed run's last words would be how far a file of weights had been written."""
    model = load(str(folder), dtype="float32", attn_implementation="sdpa").model

    model.save_pretrained(tmp_path)  # type: ignore[operator]

    assert "%|" not in capfd.readouterr().err


def test_weights_depend_on_the_seed_alone() -> None:
    """And drawing them leaves the process's random state as it was."""
    tokenizer = tiny_vl.build_tokenizer()
    before = torch.get_rng_state()

    one, same, other = (
        tiny_vl.build_model(seed, tokenizer, hidden=64, layers=1) for seed in (3, 3, 4)
    )

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)


def test_a_folder_without_its_weights_or_of_another_model_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    """One line that names the folder and what it should be."""
    with pytest.raises(ModelError, match="name a folder with a Qwen3-VL model"):
        load(str(tmp_path), dtype="auto", attn_implementation="sdpa")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(str(tmp_path), dtype="auto", attn_implementation="sdpa")


def test_weights_that_are_missing_are_not_made_up(folder: Path, tmp_path: Path) -> None:
    """Transformers would go on with random numbers in their place."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(ModelError, match="is no whole model: it has no weights for"):
        load(str(tmp_path), dtype="float32", attn_implementation="sdpa")
