"""COCO's detection files as records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.sources.ground_truth import GroundTruthError, GTObject
from engine.contract.sources.records import read_records
from engine.contract.stage2.record_form import RecordForm

Coco = dict[str, Any]
COCO = RecordForm("coco")


def coco(**changes: Any) -> Coco:
    """Two pictures; the first has a cat and a crowd of people, the second nothing."""
    return {
        "info": {"year": 2017},
        "images": [
            {"id": 7, "file_name": "a.png", "width": 200, "height": 100},
            {"id": 9, "file_name": "b.png", "width": 50, "height": 50},
        ],
        "annotations": [
            {
                "id": 1,
                "image_id": 7,
                "category_id": 17,
                "bbox": [20.0, 10, 100, 50.05],
                "segmentation": [[1.0] * 8],
                "iscrowd": 0,
            },
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 200, 100], "iscrowd": 1},
        ],
        "categories": [{"id": 17, "name": "cat"}, {"id": 1, "name": "person"}],
    } | changes


def written(folder: Path, value: Any, *, pictures: str = "") -> Path:
    """A file with both pictures beside it, or in the folder `pictures`."""
    (folder / pictures).mkdir(parents=True, exist_ok=True)
    for name, size in (("a.png", (200, 100)), ("b.png", (50, 50))):
        Image.new("RGB", size).save(folder / pictures / name)
    path = folder / "instances.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_boxes_become_corners_in_thousandths_and_crowds_stay_apart(tmp_path: Path) -> None:
    """x, y, width, height in pixels there; 999 is the far side here. A picture without objects is
    a record too."""
    first, second = read_records(written(tmp_path, coco()), None, COCO)

    assert first.objects == (GTObject("cat", (100, 100, 599, 600)),)
    assert first.crowd == (GTObject("person", (0, 0, 999, 999)),)
    assert (first.size, first.images) == ((200, 100), (tmp_path / "a.png",))
    assert first.where == "instances.json image 7"
    assert second.objects == ()


def test_pictures_are_looked_for_in_the_folders_that_are_named(tmp_path: Path) -> None:
    """The first that has one; COCO keeps files and pictures apart."""
    path = written(tmp_path, coco(), pictures="val2017")
    form = RecordForm("coco", (tmp_path / "train2017", tmp_path / "val2017"))

    assert read_records(path, 1, form)[0].images == (tmp_path / "val2017" / "a.png",)
    with pytest.raises(GroundTruthError, match=r"image 7: file_name a.png is not in .*image_dirs"):
        read_records(path, 1, COCO)


def test_boxes_a_rounding_over_the_side_are_cut_and_others_refused(tmp_path: Path) -> None:
    """Most COCO files have a few of the first kind."""
    over = {"id": 1, "image_id": 7, "category_id": 17, "bbox": [150, 0, 50.6, 100]}
    far = over | {"bbox": [150, 0, 80, 100]}

    path = written(tmp_path, coco(annotations=[over]))
    assert read_records(path, None, COCO)[0].objects[0].box == (749, 0, 999, 999)
    with pytest.raises(GroundTruthError, match=r"annotation 1 has the bbox .*leaves its picture"):
        read_records(written(tmp_path, coco(annotations=[far])), None, COCO)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"images": []}\n{"images": []}', "is not JSON"),
        ("[]", "is no JSON object"),
        ({"images": [], "annotations": []}, "has no list of categories"),
        (coco(images=[]), "annotations have image_id 7, which no image has"),
        (coco(annotations=[]), "objects are none in all 2 records"),
        (coco(categories=[]), "annotation 1 has category_id 17, which no category has"),
        (coco(categories=[{"id": 17}, {"id": 1, "name": "x"}]), "desc None is blank"),
        (coco(images=[{"id": 7, "width": 1, "height": 1}]), "file_name None is no name"),
        (coco(images=[{"id": 7, "file_name": "a.png"}]), "width None is no size"),
        (
            coco(annotations=[{"id": 1, "image_id": 7, "category_id": 17, "bbox": [1, 2, "3", 4]}]),
            "annotation 1 has the bbox",
        ),
    ],
)
def test_what_is_no_coco_file_is_refused_by_name(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match=message):
        read_records(written(tmp_path, value), None, COCO)
