"""Rows as tools write them: numbers keep their text, a column may have empty cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError, RLLoopError
from engine.contract.registry import validate
from engine.contract.sources import ground_truth
from engine.contract.sources.ground_truth import GroundTruthError, carries_shape, read_objects
from engine.contract.sources.mixture import DataConfig
from engine.contract.sources.questions import read_rows
from engine.contract.sources.records import read_records
from engine.contract.sources.rows import Row
from engine.data.rows import Question
from engine.data.split import carve


def rows_of(folder: Path, *lines: str) -> list[Row]:
    path = folder / "rows.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return read_rows(DataConfig(source=str(path)))


@pytest.mark.parametrize(
    ("written", "gold"),
    [
        *(("0.00001", "0.00001"), ("1e-7", "1e-7"), ("1.50", "1.50"), ("-0.125", "-0.125")),
        *(("18", "18"), ("18.0", "18"), ("1e3", "1000"), ("-4.0", "-4")),
        *(("12345678901234567890", "12345678901234567890"), ("1e300", "1e300")),
        ("12345678901234567890.0", "12345678901234567890"),
        ('"1e-5"', "1e-5"),
    ],
)
def test_a_number_is_the_gold_that_was_written(tmp_path: Path, written: str, gold: str) -> None:
    """A whole number beside an empty cell becomes 18.0 in a table: that one is 18 still."""
    (row,) = rows_of(tmp_path, f'{{"prompt": "q", "answer": {written}}}')

    assert row.answer == gold


@pytest.mark.parametrize("written", ["1e999", "-1e999", "NaN", "Infinity", "null", "true", "[]"])
def test_what_is_no_gold_is_refused_by_its_line(tmp_path: Path, written: str) -> None:
    """Infinity would be a number that no completion can write."""
    with pytest.raises(RLLoopError, match="line 2: "):
        rows_of(
            tmp_path,
            '{"prompt": "q", "answer": 1}',
            f'{{"prompt": "r", "answer": {written}}}',
        )


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ([None, None], ["1", "2"]),
        (["", ""], ["1", "2"]),
        ([..., ...], ["1", "2"]),
        (["a", None, 1, ..., ""], ["a", "2", "1", "4", "5"]),
        ([4, None, 1, ..., ""], ["4", "2", "1", "line 4", "5"]),
        ([None, 1], ["line 1", "1"]),
        ([2, None, 1], ["2", "line 2", "1"]),
        ([1.0, None, 2.0], ["1", "line 2", "2"]),
        ([2, None, "line 2"], ["2", "line 2'", "line 2"]),
    ],
)
def test_a_row_without_an_id_is_named_by_its_line(
    tmp_path: Path, given: list[Any], ids: list[str]
) -> None:
    """Never by a name that another row has."""
    written = [{"prompt": f"q{n}", "answer": "1", "id": one} for n, one in enumerate(given)]
    lines = [json.dumps({k: v for k, v in row.items() if v is not ...}) for row in written]

    assert [row.id for row in rows_of(tmp_path, *lines)] == ids


@pytest.mark.parametrize("given", [[1], {"a": 1}, True, 1.5])
def test_an_id_is_a_text_or_a_whole_number(tmp_path: Path, given: Any) -> None:
    """The line is named, and what stands there."""
    with pytest.raises(RLLoopError, match="line 1: has no id under 'id': it is"):
        rows_of(tmp_path, json.dumps({"prompt": "q", "answer": "1", "id": given}))


def test_two_rows_with_one_id_are_refused(tmp_path: Path) -> None:
    """Also where one is a number and the other its text."""
    with pytest.raises(RLLoopError, match="line 2: id '7' stands in line 1 too"):
        rows_of(
            tmp_path,
            '{"prompt": "q", "answer": "1", "id": 7}',
            '{"prompt": "r", "answer": "1", "id": "7"}',
        )


def test_a_corpus_of_one_question_is_told_what_it_needs(tmp_path: Path) -> None:
    """A smaller share would not help; however the question is written, it is one."""
    path = tmp_path / "rows.jsonl"
    asked = ["What is 2 + 2?", "what is  2 + 2 ?", "What is ２ + 2"] * 40
    path.write_text("".join(json.dumps({"prompt": q, "answer": "4"}) + "\n" for q in asked))

    with pytest.raises(ConfigError) as refused:
        validate("rl_run", {"base": "org/model", "data": {"source": str(path), "dedupe": "off"}})

    words = "rows that all ask the same question: no row can be held out"
    assert f"data: has 120 {words}; add rows with other questions" in str(refused.value)
    with pytest.raises(RLLoopError, match=words):
        carve(
            [Question(str(n), q, "4") for n, q in enumerate(asked)],
            heldout_frac=0.2, select_frac=0.5, seed=0,
        )  # fmt: skip


@pytest.mark.parametrize("key", ["polygon", "poly", "segmentation", "points", "rotatedBox"])
def test_a_shape_that_is_null_is_none(key: str) -> None:
    """Tools write every column in every row."""
    record = {"objects": [{"desc": "cup", "bbox_2d": [1, 2, 3, 4], key: None, "colour": None}]}

    assert read_objects(record)[0].box == (1, 2, 3, 4)
    with pytest.raises(GroundTruthError, match="must hold bbox_2d as its only geometry"):
        read_objects({"objects": [{"desc": "cup", "bbox_2d": [1, 2, 3, 4], key: [1, 2, 3]}]})
    with pytest.raises(GroundTruthError, match="not none"):
        read_objects({"objects": [{"desc": "cup", key: None}]})


def test_a_key_of_any_length_is_not_kept() -> None:
    """A file of such keys would stay in the web process."""
    before = ground_truth._known.cache_info().currsize
    keys = ["x" * 1_000_000 + str(n) for n in range(3)]

    assert [carries_shape(key) for key in [*keys, "poly_" * 30 + "gon"]][:3] == [False] * 3
    assert carries_shape("_".join(["polygon"] * 40))
    assert ground_truth._known.cache_info().currsize == before


@pytest.mark.parametrize(
    ("size", "read"), [(64, 64), (64.0, 64), (64.5, None), ("64", None), (True, None), (None, None)]
)
def test_a_size_may_have_the_point_of_a_column_of_numbers(
    tmp_path: Path, size: Any, read: int | None
) -> None:
    """64.0 pixels are 64; half a pixel is a slip. Ids and other columns may be null."""
    (tmp_path / "a.png").touch()
    path = tmp_path / "records.jsonl"
    record = {
        "images": ["a.png"], "objects": [{"desc": "cup", "bbox_2d": [1, 2, 3, 4]}],
        "width": size, "height": size, "id": None, "messages": None, "source": None,
    }  # fmt: skip
    path.write_text(json.dumps(record))

    if read is None:
        with pytest.raises(GroundTruthError, match=r"line 1: width .*(is no size|is missing)"):
            read_records(path)
        return
    assert read_records(path)[0].size == (read, read)
