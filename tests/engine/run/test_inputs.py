"""What an attempt reads, by content: the hashes of its job.json, where they still hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import InputFile, RunDir
from engine.run.session import Attempt
from tests.engine.conftest import OpenNewest

NewAttempt = Callable[..., RunDir]


@pytest.fixture
def told(
    recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Path
) -> Callable[[int], tuple[Path, Attempt]]:
    """`told(age_s)`: a data file written so long before its job.json, which gives it a hash."""
    data = tmp_path / "data.jsonl"
    data.write_bytes(Path(recipe["data"]["source"]).read_bytes())

    def make(age_s: int) -> tuple[Path, Attempt]:
        run = new_attempt(recipe | {"data": {"source": str(data)}})
        path = run.attempt(1).job_file
        job = json.loads(path.read_bytes())
        one = InputFile(path=str(data), size=data.stat().st_size, sha256="told")
        path.write_text(json.dumps(job | {"inputs": [one.model_dump()]}))
        written = path.stat().st_mtime - age_s
        os.utime(data, (written, written))
        return data, open_newest(run)

    return make


def test_what_the_supervisor_hashed_is_not_hashed_again(
    told: Callable[[int], tuple[Path, Attempt]],
) -> None:
    """A model takes gigabytes."""
    data, attempt = told(10)

    assert attempt.inputs[str(data)] == "told"


def test_a_file_written_since_is_hashed_as_it_is_now(
    told: Callable[[int], tuple[Path, Attempt]],
) -> None:
    """An engine can be started by hand on a directory of last week."""
    data, attempt = told(-10)

    assert attempt.inputs[str(data)] == InputFile.of(data).sha256


def test_notes_and_hidden_files_beside_a_model_are_no_part_of_it(
    recipe: dict[str, Any],
    base_folder: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    tmp_path: Path,
) -> None:
    """They come and go, and no loader reads them; everything else counts."""
    model = tmp_path / "model"
    model.mkdir()
    for path in base_folder.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    names = []

    for name in ("README.md", ".gitattributes", "generation_config.json"):
        (model / name).write_text("{}")
        run = new_attempt(recipe | {"base": str(model)}, name=name)
        names.append(open_newest(run).content(str(model)))

    assert names[0] == names[1]
    assert names[1] != names[2]
    assert open_newest(run).content("embedded:qwen3-tiny") == "embedded:qwen3-tiny"
