"""A record file: read as it is meant, or refused by line, field and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.records import Record, read_records


def read_one(folder: Path, **fields: Any) -> Record:
    """The second of two records, with some fields set and those that are `...` left out."""
    Image.new("RGB", (64, 48)).save(folder / "a.png")
    good = {
        "images": ["a.png"],
        "objects": [{"desc": "cat", "bbox_2d": [1, 2, 30, 40]}],
        "width": 64,
        "height": 48,
    }
    row = {name: value for name, value in (good | fields).items() if value is not ...}
    path = folder / "x.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (good, row)))
    return read_records(path)[1]


@pytest.mark.parametrize("fields", [{"width": 64.0}, {"height": 48.0, "width": 64.0}])
def test_a_size_that_a_table_wrote_with_a_point_is_read(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    """A column of whole numbers with a gap in it comes out of pandas as 64.0."""
    assert read_one(tmp_path, **fields).size == (64, 48)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 64.5}, "width 64.5 is no size"),
        ({"width": "64"}, "width '64' is no size"),
        ({"width": True}, "width True is no size"),
        ({"width": None}, "width None is no size"),
        ({"height": 1e300}, "height is no size of a picture"),
        ({"objects": []}, "objects are none"),
        ({"objects": None}, "objects is not a list"),
        ({"images": ["b.png"]}, r"images\[0\] .*b.png does not exist"),
        ({"images": ["."]}, r"images\[0\] .* is a folder"),
        ({"images": []}, "images .* is no list of paths"),
        ({"images": [None]}, "images .* is no list of paths"),
    ],
)
def test_a_bad_record_is_refused_by_line_and_field(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GroundTruthError, match=f"^x.jsonl line 2: {message}"):
        read_one(tmp_path, **fields)
