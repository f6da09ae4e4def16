"""A real, very small Qwen3-VL folder, drawn shapes, and what stage-2 reads of both."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.run_dir import RunDir
from engine.contract.sources.records import Record, read_records
from engine.models.qwen3_vl import VisionModel, load
from engine.stage2.channel_a import build_segment
from engine.stage2.embedded import shapes, tiny_vl
from engine.stage2.learn.layout import ModelInputs
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.target.segments import Segment

torch.set_num_threads(1)  # tensors this small only lose by more, above all beside other work
QUESTION = "Locate every object and answer in JSON."
AB: Mapping[str, Any] = {
    "custom": {
        "trainer_variant": "stage2_ab_training",
        "extra": {
            "rollout_matching": {
                "rollout_backend": "hf",
                "max_new_tokens": 6,
                "decode_batch_size": 4,
            }
        },
    },
    "stage2_ab": {
        "schedule": {"b_ratio": 0.5},
        "channel_b": {"semantic_desc_gate": {"enabled": False}},
    },
}
"""A and B by turns, with rollouts that take a moment."""


@pytest.fixture(scope="session")
def vl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded architecture, narrower, as a plain Hugging Face folder."""
    return tiny_vl.save(tmp_path_factory.mktemp("vl"), seed=0, hidden=64, layers=2)


@pytest.fixture(scope="session")
def shapes_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 scenes with one or two rectangles each."""
    folder = tmp_path_factory.mktemp("shapes")
    style = shapes.Style(most_objects=2)
    return shapes.write(folder, "train", shapes.distinct(24, 7, style), style)


@pytest.fixture(scope="session")
def records(shapes_file: Path) -> list[Record]:
    return read_records(shapes_file)


@pytest.fixture
def vlm(vl_folder: Path) -> VisionModel:
    """A fresh model that a test may train."""
    found = load(str(vl_folder), dtype="float32", attn_implementation="sdpa")
    found.model.eval()
    return found


@pytest.fixture
def pieces(vlm: VisionModel) -> TokenPieces:
    return TokenPieces(vlm.tokenizer)


@pytest.fixture
def reader(vlm: VisionModel, pieces: TokenPieces) -> PromptReader:
    return PromptReader(vlm, pieces, QUESTION)


@pytest.fixture
def coord_ids(pieces: TokenPieces) -> torch.Tensor:
    return torch.tensor(pieces.coord_ids)


def taught(
    records: list[Record], reader: PromptReader, desc_weight: float = 1.0
) -> list[tuple[Segment, ModelInputs]]:
    """Channel-A's segments of some records, with their pictures."""
    found = []
    for record in records:
        prompt = reader(record)
        segment = build_segment(prompt.ids, record.objects, desc_weight, reader.pieces)
        found.append((segment, ModelInputs(segment.ids, prompt.pictures)))
    return found


@pytest.fixture(scope="session")
def ab_recipe(vl_folder: Path, shapes_file: Path) -> dict[str, Any]:
    """A whole `stage2_ab` that takes a few seconds: A and B by turns, two passes an update.

    Tests change copies of it: see `changed`.
    """
    return {
        **copy.deepcopy(AB),
        "model": {"path": str(vl_folder), "tuning": "full"},
        "data": {"train_jsonl": str(shapes_file), "val_jsonl": str(shapes_file), "val_limit": 4},
        "training": {
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-3,
            "max_steps": 6,
            "eval_steps": 3,
            "save_steps": 2,
            "seed": 11,
        },
        "threads": 1,
    }


@pytest.fixture(scope="session")
def matching_recipe(ab_recipe: dict[str, Any]) -> dict[str, Any]:
    """The same as a run of rollout matching: every step rolls out."""
    raw = changed(ab_recipe, custom__trainer_variant="rollout_matching_sft")
    del raw["stage2_ab"]
    return raw


def changed(recipe: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A copy with other values; `training__seed=3` sets `training.seed`."""
    found = copy.deepcopy(recipe)
    for name, value in settings.items():
        *path, last = name.split("__")
        section = found
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return found


def folder_of(run: RunDir, step: int) -> Path:
    """Where the Trainer saves a step."""
    return run.checkpoints / f"checkpoint-{step}"
