"""The embedded model and data of stage-2 as files below the cache: no download.

Each is made once for a recipe and found again by its name. Knows no training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.contract.stage2.config import DataConfig
from engine.run.once import make_once
from engine.stage2.embedded import shapes, tiny_vl

ROWS = {"train": 2000, "val": 200, "report": 300}
"""Scenes of each split; no scene stands in two of them."""
_SEED = 0
"""The data are one corpus for every run; what a run's seed changes is the run."""


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The record files of a run."""

    train: Path
    val: Path | None
    report: Path | None


def model_folder(cache: Path, seed: int) -> Path:
    """The tiny Qwen3-VL of that seed as a Hugging Face folder."""
    return make_once(cache / f"qwen3-vl-tiny-{seed}", lambda folder: tiny_vl.save(folder, seed))


def data_files(data: DataConfig, cache: Path) -> DataFiles:
    """Every embedded name as the file it stands for, everything else as it is."""
    drawn = [data.train_jsonl, data.val_jsonl, data.report_jsonl]
    folder = cache / "shapes"
    if any(path and path.startswith("embedded:") for path in drawn):
        make_once(folder, _draw)

    def file_of(path: str | None, split: str) -> Path | None:
        if path is None:
            return None
        return folder / f"{split}.jsonl" if path.startswith("embedded:") else Path(path)

    train = file_of(data.train_jsonl, "train")
    assert train is not None, "the kind asks for training records"
    return DataFiles(train, file_of(data.val_jsonl, "val"), file_of(data.report_jsonl, "report"))


def _draw(folder: Path) -> None:
    style = shapes.Style()
    scenes = shapes.distinct(sum(ROWS.values()), _SEED, style)
    start = 0
    for split, count in ROWS.items():
        shapes.write(folder, split, scenes[start : start + count], style)
        start += count
