"""The bench `detection`: pictures with boxes, answered by a vision-language model.

In a list of benches it is the text `detection`, or a mapping with `task: detection`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.base_model import checkpoint_origin
from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigProblem
from engine.contract.paths import located
from engine.contract.provenance import run_of_any_kind
from engine.contract.section import Section
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.records import each_record, require_good, some
from engine.contract.stage2.config import DataConfig
from engine.contract.stage2.detection import BENCH, BoxScore, DetectionConfig
from engine.contract.stage2.record_form import RecordForm, RecordSource

_COCO = ".json"


class DetectionBench(Section):
    """Records that checkpoints find the objects of. What is left out is as the run of the first
    checkpoint had it."""

    source: str
    """The records: a JSONL as stage 2 reads it, or a COCO file."""
    form: RecordSource = "jsonl"
    """How they are written; a file that ends in .json is COCO's by default."""
    image_dirs: list[str] = Field([], max_length=16)
    """Folders that the pictures of a COCO file are looked for in; by default its own."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many records."""
    prompt: str = DataConfig().prompt
    """What is asked where a record brings no messages of its own."""
    score: BoxScore = "one"
    """What orders the boxes of a class for mAP: nothing (`one`), or `coord_prob`."""
    max_new_tokens: int = Field(3084, ge=1, le=131_072)
    """Longest answer, in tokens."""
    repetition_penalty: float = Field(1.0, gt=0)
    """1 is none."""
    batch_size: int = Field(8, ge=1)
    """Pictures answered in one call."""
    max_pixels: int | None = Field(None, ge=1, lt=2**31)
    """A picture with more pixels is made smaller; by default the model's own."""
    min_pixels: int | None = Field(None, ge=1, lt=2**31)
    """A picture with fewer is made larger; by default the model's own."""

    @model_validator(mode="before")
    @classmethod
    def _form(cls, data: Any) -> Any:
        source = data.get("source") if isinstance(data, Mapping) else None
        if isinstance(source, str) and source.endswith(_COCO):
            return {"form": "coco", **data}
        return data

    @field_validator("source")
    @classmethod
    def _absolute(cls, source: str) -> str:
        return str(located(source))

    @field_validator("image_dirs")
    @classmethod
    def _located(cls, folders: list[str]) -> list[str]:
        return [str(located(folder)) for folder in folders]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.form != "coco" and self.image_dirs:
            raise ValueError("names image_dirs beside a JSONL, which names its pictures itself")
        return self

    @property
    def name(self) -> str:
        """What tables call it."""
        return DetectionConfig(score=self.score).bench

    @property
    def record_form(self) -> RecordForm:
        """How its records are read."""
        return RecordForm(self.form, tuple(map(Path, self.image_dirs)))


def is_detection(bench: Any) -> bool:
    """Whether an entry of `benches` is this bench."""
    return bench == BENCH or (isinstance(bench, Mapping) and bench.get("task") == BENCH)


def as_the_run(bench: Any, base: Any) -> dict[str, Any]:
    """An entry with what it leaves out as the run of a checkpoint had it."""
    said = dict(bench) if isinstance(bench, Mapping) else {}
    said.pop("task", None)
    return _asked_by(base) | said if isinstance(base, str) else said


def _asked_by(base: str) -> dict[str, Any]:
    try:
        origin = None if base.startswith("embedded:") else checkpoint_origin(located(base))
    except (OSError, ValueError):
        return {}  # said of the checkpoint
    run = None if origin is None else run_of_any_kind(origin.adapter or origin.base)
    if run is None:
        return {}
    try:
        config = read_json_object(run.attempt(run.latest_attempt()).job_file).get("config")
    except OSError:
        return {}
    found = {
        "prompt": _at(config, "data", "prompt"),
        "score": _at(config, "detection", "score"),
        "max_pixels": _at(config, "model", "max_pixels"),
        "min_pixels": _at(config, "model", "min_pixels"),
        "max_new_tokens": _at(config, "custom", "extra", "rollout_matching", "max_new_tokens"),
        "repetition_penalty": _at(
            config, "custom", "extra", "rollout_matching", "repetition_penalty"
        ),
    }
    return {name: value for name, value in found.items() if value is not None}


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def detection_problems(benches: Sequence[DetectionBench]) -> Iterator[ConfigProblem]:
    """Records that cannot be read, before anything is queued."""
    for place, bench in enumerate(benches):
        field = f"detection.{place}.source"
        try:
            _survey(Path(bench.source), bench.limit, bench.record_form)
        except GroundTruthError as error:
            yield ConfigProblem(field, bench.source, error.what, error.remedy)


@once_a_file
def _survey(path: Path, limit: int | None, form: RecordForm) -> int:
    """How many records. Raises GroundTruthError, with the lines of all bad ones."""
    bad: list[GroundTruthError] = []
    counts = [len(record.objects) for record in each_record(path, limit, bad, form)]
    require_good(bad)
    some(len(counts), sum(counts), path)
    return len(counts)
