"""Curriculum files and difficulties as they are looked at before a job is queued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.registry import cautions, validate
from engine.contract.sources.curriculum import Ids, normal

SUBJECTS = ("Counting & Probability", "Algebra", "Intermediate  Algebra", "Precalculus")


@pytest.fixture
def math_file(tmp_path: Path) -> Path:
    """400 rows with the ids that a loader makes of MATH's subjects."""
    path = tmp_path / "math.jsonl"
    rows = [
        {
            "id": f"math_{SUBJECTS[i % 4].replace('  ', ' ')}_{i}",
            "prompt": f"{i}?",
            "answer": "7",
            "level": f"Level {i % 5 + 1}",
            "extra_info": {"pass": i / 400},
        }
        for i in range(400)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def config(rows: Path, **data: Any) -> dict[str, Any]:
    return {
        "base": "embedded:qwen3-tiny",
        "verifier": "math",
        "data": {"source": str(rows), **data},
        "tuning": "full",
    }


def problems(raw: dict[str, Any]) -> list[str]:
    try:
        validate("rl_run", raw)
    except ConfigError as error:
        return [problem.line() for problem in error.problems]
    return []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model that reads any text."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def written(tmp_path: Path, ids: list[str]) -> Path:
    path = tmp_path / "curriculum.txt"
    path.write_text("".join(id_ + "\n" for id_ in ids), "utf-8")
    return path


@pytest.mark.requirement("EX-08")
def test_ids_that_tools_write_differently_name_the_same_row(
    tmp_path: Path, math_file: Path, model: Path
) -> None:
    """Case, blanks and `&`: `counting_and_probability` is "Counting & Probability"."""
    slugs = ("counting_and_probability", "ALGEBRA", " intermediate_algebra", "Precalculus")
    path = written(tmp_path, [f"math_{slugs[i % 4].strip()}_{i} " for i in range(400)])

    raw = config(math_file, curriculum="file", curriculum_file=str(path)) | {"base": str(model)}

    assert problems(raw) == []
    assert not any(c.field == "data.curriculum_file" for c in cautions("rl_run", raw))


@pytest.mark.requirement("EX-08")
def test_more_than_a_hundredth_of_unmatched_ids_is_an_error_with_count_and_examples(
    tmp_path: Path, math_file: Path, model: Path
) -> None:
    """One of a hundred is said and left out; two are refused."""
    ids = [f"math_Algebra_{i}" for i in range(1, 400, 4)]
    raw = config(math_file, curriculum="file") | {"base": str(model)}
    raw["data"]["curriculum_file"] = str(written(tmp_path, [*ids[:99], "gsm8k_1"]))

    assert problems(raw) == []
    said = [c.line() for c in cautions("rl_run", raw) if c.field == "data.curriculum_file"]
    assert "1 of 100 ids name no row of the data, e.g. 'gsm8k_1'" in said[0]

    written(tmp_path, [*ids[:98], "gsm8k_1", "gsm8k_2"])
    [problem] = problems(raw)
    assert "2 of 100 ids name no row of the data, e.g. 'gsm8k_1', 'gsm8k_2'" in problem
    assert "'math_Counting & Probability_0'" in problem


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "holds no id"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, math_file: Path, model: Path, content: bytes | None, said: str
) -> None:
    """By its name, before anything is queued."""
    path = tmp_path / "curriculum.txt"
    if content is not None:
        path.write_bytes(content)

    raw = config(math_file, curriculum="file", curriculum_file=str(path)) | {"base": str(model)}

    [problem] = problems(raw)
    assert str(path) in problem
    assert said in problem


def test_an_id_that_two_rows_have_when_it_is_normalised_names_neither() -> None:
    """As it is written it still names one."""
    ids = Ids(["Number Theory", "number_theory", "Algebra"])

    assert [ids.place(id_) for id_ in ("Number Theory", "NUMBER THEORY", "algebra")] == [0, None, 2]
    assert normal("  R&D\tcosts ") == "r_and_d_costs"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"curriculum": "file"}, "data.curriculum: needs a file"),
        ({"curriculum": "bands"}, "data.curriculum: is not told how hard a row is"),
        ({"curriculum_file": "ids.txt"}, "does nothing with data.curriculum: none"),
        (
            {"curriculum": "easy_to_hard", "difficulty_field": "hardness"},
            "none of 400 rows has a number under 'hardness'",
        ),
        ({"curriculum": "bands", "difficulty_field": "level"}, None),
        ({"curriculum": "easy_to_hard", "difficulty_field": "extra_info.pass"}, None),
    ],
)
def test_a_curriculum_has_what_it_needs(
    math_file: Path, model: Path, data: dict[str, Any], said: str | None
) -> None:
    """A field is looked for in the rows, also inside another; what does nothing is refused."""
    found = problems(config(math_file, **data) | {"base": str(model)})

    assert found == [] if said is None else said in found[0]


def test_a_row_of_a_passk_file_that_is_none_is_named_by_its_line(
    tmp_path: Path, math_file: Path, model: Path
) -> None:
    """One id a line where a JSON object a line is needed."""
    path = written(tmp_path, ['{"id": "math_Algebra_1", "pass_rate": 0.5}', "math_Algebra_5"])

    raw = config(math_file, curriculum="easy_to_hard", curriculum_file=str(path))

    [problem] = problems(raw | {"base": str(model)})
    assert "line 2" in problem
    assert "cockpit passk" in problem
