"""Ground truth: read exactly, or refused with the place and the value."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.sources.ground_truth import GroundTruthError, GTObject, read_objects

GOOD: dict[str, Any] = {"desc": "cat", "bbox_2d": [1, 2, 3, 4]}


def read_box(*values: Any) -> tuple[int, ...]:
    return read_objects({"objects": [{"desc": "cat", "bbox_2d": list(values)}]})[0].box


@pytest.mark.requirement("AB-07")
@pytest.mark.parametrize(
    ("values", "box"),
    [
        ((0, 0, 999, 999), (0, 0, 999, 999)),
        (("<|coord_0|>", "<|coord_5|>", "<|coord_5|>", "<|coord_999|>"), (0, 5, 5, 999)),
        ((0.5, 1.5, 2.5, 3.5), (0, 2, 2, 4)),  # half to even
        ((-0.4, "7", "8.2", 999.4), (0, 7, 8, 999)),
        (("<|coord_3|>", 4, 5.0, "6"), (3, 4, 5, 6)),
        ((5, 5, 5, 5), (5, 5, 5, 5)),
        ((0, 0, 1, 1), (0, 0, 1, 1)),
    ],
)
def test_coordinates_are_coord_tokens_or_rounded_numbers(values: Any, box: Any) -> None:
    """Coord tokens are decoded first, then int(round(float(x)))."""
    assert read_box(*values) == box


@pytest.mark.requirement("AB-07")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"poly": [1, 2]}, "only geometry, not bbox_2d, poly"),
        ({"line": []}, "only geometry"),
        ({"polygon_2d": [1, 2]}, "not bbox_2d, polygon_2d"),
        ({"bboxes": [[1, 2, 3, 4]]}, "not bbox_2d, bboxes"),
        ({"ellipse": [1]}, "not bbox_2d, ellipse"),
        ({"rotatedBbox": [1]}, "not bbox_2d, rotatedBbox"),
        ({"bbox_2d": [1, 2, 3]}, "not a list of 4"),
        ({"bbox_2d": [1, 2, 3, 4, 5]}, "not a list of 4"),
        ({"bbox_2d": "1234"}, "not a list of 4"),
        ({"bbox_2d": None}, "not a list of 4"),
        ({"bbox_2d": [1, 2, 3, "x"]}, r"bbox_2d\[3\] 'x' is no coordinate"),
        ({"bbox_2d": [1, 2, 3, True]}, "True is no coordinate"),
        ({"bbox_2d": [1, 2, 3, None]}, "None is no coordinate"),
        ({"bbox_2d": [1, 2, 3, float("nan")]}, "no coordinate"),
        ({"bbox_2d": [1, 2, 3, float("inf")]}, "no coordinate"),
        ({"bbox_2d": [1, 2, 3, "<|coord_1000|>"]}, "no coordinate"),
        ({"bbox_2d": [1, 2, 3, 10**400]}, "no coordinate"),
        ({"bbox_2d": [1, 2, 3, 1000]}, r"1000 is outside 0\.\.999"),
        ({"bbox_2d": [1, 2, 3, 999.5]}, "outside"),
        ({"bbox_2d": [-1, 2, 3, 4]}, "outside"),
        ({"bbox_2d": [4, 2, 3, 4]}, "out of order"),
        ({"bbox_2d": [1, 5, 3, 4]}, "out of order"),
        ({"desc": ""}, "blank"),
        ({"desc": " \n"}, "blank"),
        ({"desc": 5}, "blank or no text"),
        ({"desc": "a<|im_end|>"}, "contains <|im_end|>".replace("|", r"\|")),
        ({"desc": "\ud800"}, "Unicode"),
    ],
)
def test_a_bad_object_stops_the_run_with_its_place(change: dict[str, Any], message: str) -> None:
    """Ground truth is never repaired; the error names record, field and value."""
    with pytest.raises(GroundTruthError, match=message) as caught:
        read_objects({"objects": [GOOD, GOOD | change]}, "train.jsonl line 7")

    assert str(caught.value).startswith("train.jsonl line 7: objects[1]")
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.requirement("AB-07")
def test_an_object_without_geometry_is_refused() -> None:
    """Exactly one geometry, not none."""
    with pytest.raises(GroundTruthError, match="not none"):
        read_objects({"objects": [{"desc": "cat"}]})


@pytest.mark.parametrize("objects", [None, {}, "cat", 5])
def test_objects_must_be_a_list(objects: Any) -> None:
    """A record of another form is not read as empty."""
    with pytest.raises(GroundTruthError, match="objects is not a list"):
        read_objects({"objects": objects})


def test_an_object_must_be_a_mapping() -> None:
    """A bare string is no object."""
    with pytest.raises(GroundTruthError, match=r"objects\[0\] is not an object"):
        read_objects({"objects": ["cat"]})


def test_other_keys_are_ignored_and_order_is_kept() -> None:
    """A record may say more than we need; an image may show nothing."""
    more = {"id": 1, "iscrowd": 0, "area": 4, "bbox_score": 0.5, "box_color": "red", "lined": True}
    objects = read_objects({"objects": [{**more, **GOOD}, {**GOOD, "desc": "dog"}]})

    assert objects == (GTObject("cat", (1, 2, 3, 4)), GTObject("dog", (1, 2, 3, 4)))
    assert read_objects({"objects": []}) == ()


@pytest.mark.parametrize(
    "empty", [{"polygon": None}, {"poly": None, "segmentation": None}, {"rotated_bbox": None}]
)
def test_an_empty_column_of_a_table_is_no_geometry(empty: dict[str, Any]) -> None:
    """What was put together from several sources has null where a row has no such shape."""
    assert read_objects({"objects": [GOOD | empty]}) == (GTObject("cat", (1, 2, 3, 4)),)


@pytest.mark.parametrize("box", [{}, {"bbox_2d": None}])
def test_null_shapes_alone_are_no_geometry_either(box: dict[str, Any]) -> None:
    with pytest.raises(GroundTruthError, match=r"objects\[0\]"):
        read_objects({"objects": [{"desc": "cat", "polygon": None} | box]})
