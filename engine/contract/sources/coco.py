"""COCO's detection format, read as records: one JSON with `images`, `annotations`, `categories`.

Boxes there are x, y, width and height in pixels; here corners in thousandths of the picture. What
is drawn as a crowd is kept apart: no object is to be found there one by one. Segmentations,
captions and keypoints are passed over. https://cocodataset.org/#format-data
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine.contract.documents import UnreadableError, parse_json, read_file, why
from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.stage2 import coords

MAX_COCO_BYTES = 1024**3
"""Of one file, which is read whole: the training file of COCO 2017 has 448 MB."""
_PASSED_OVER = frozenset({"segmentation", "caption", "keypoints", "segments_info"})
_SLACK = 1.0
"""Pixels that a box may reach over its picture: programs round otherwise."""


def coco_values(
    path: Path, folders: Sequence[Path]
) -> Iterator[tuple[str, Callable[[], Mapping[str, Any]]]]:
    """Of each picture, in the file's order, where it stands and what makes a record's fields of it.

    `folders`: where pictures are looked for, the first that has one; the file's own without any.
    Raises GroundTruthError for a file that is none, and from a call for what is wrong with one.
    """
    whole = _whole(path)
    names = {one.get("id"): one.get("name") for one in _listed(whole, "categories", path)}
    drawn: dict[Any, list[Mapping[str, Any]]] = {}
    for one in _listed(whole, "annotations", path):
        drawn.setdefault(one.get("image_id"), []).append(one)
    images = _listed(whole, "images", path)
    _require_known(drawn, {one.get("id") for one in images}, path)
    places = folders or (path.parent,)
    for image in images:
        number = image.get("id")
        where = f"{path.name} image {number}"
        yield where, partial(_record, image, drawn.get(number, ()), names, places, where)


def _whole(path: Path) -> Mapping[str, Any]:
    try:
        value = parse_json(read_file(path, MAX_COCO_BYTES), pairs=_kept)
    except UnreadableError as error:
        raise GroundTruthError("", path.name, str(error), "name a COCO file") from None
    except OSError as error:
        raise GroundTruthError("", path.name, why(error), "name a readable COCO file") from None
    if not isinstance(value, dict):
        remedy = "name a file with images, annotations and categories"
        raise GroundTruthError("", path.name, "is no COCO file: it is no JSON object", remedy)
    return value


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Dropped while it is read: polygons are most of such a file."""
    return {key: value for key, value in pairs if key not in _PASSED_OVER}


def _listed(whole: Mapping[str, Any], key: str, path: Path) -> Sequence[Mapping[str, Any]]:
    found = whole.get(key)
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    remedy = "name a file of boxes (instances_….json); one JSON object a line is source: jsonl"
    raise GroundTruthError("", path.name, f"is no COCO file: it has no list of {key}", remedy)


def _require_known(drawn: Mapping[Any, Any], images: set[Any], path: Path) -> None:
    strays = [number for number in drawn if number not in images]
    if strays:
        problem = f"have image_id {strays[0]!r}, which no image has"
        if len(strays) > 1:
            problem += f" (and {len(strays) - 1} more)"
        raise GroundTruthError(path.name, "annotations", problem, "mend the file")


def _record(
    image: Mapping[str, Any],
    annotations: Sequence[Mapping[str, Any]],
    names: Mapping[Any, Any],
    folders: Sequence[Path],
    where: str,
) -> Mapping[str, Any]:
    """The fields of a record."""
    name = image.get("file_name")
    if not isinstance(name, str):
        raise GroundTruthError(where, "file_name", f"{name!r} is no name", "name its picture")
    size = (_side(image, "width", where), _side(image, "height", where))
    objects: list[dict[str, Any]] = []
    crowd: list[dict[str, Any]] = []
    for one in annotations:
        boxes = crowd if one.get("iscrowd") else objects
        boxes.append(_object(one, names, size, where))
    found = next((folder for folder in folders if (folder / name).is_file()), None)
    if found is None:
        looked = ", ".join(map(str, folders))
        problem, remedy = f"{name} is not in {looked}", "name its folder in data.image_dirs"
        raise GroundTruthError(where, "file_name", problem, remedy)
    return {
        "images": [str(found / name)],
        "width": size[0],
        "height": size[1],
        "objects": objects,
        "crowd": crowd,
    }


def _side(image: Mapping[str, Any], field: str, where: str) -> int:
    value = image.get(field)
    if type(value) is not int or value < 1:
        raise GroundTruthError(where, field, f"{value!r} is no size", "give it in pixels")
    return value


def _object(
    one: Mapping[str, Any], names: Mapping[Any, Any], size: tuple[int, int], where: str
) -> dict[str, Any]:
    field = f"annotation {one.get('id')}"
    number = one.get("category_id")
    if number not in names:
        problem = f"has category_id {number!r}, which no category has"
        raise GroundTruthError(where, field, problem, "mend the file")
    box = one.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        problem = f"has the bbox {box!r}"
        raise GroundTruthError(where, field, problem, "give x, y, width, height in pixels")
    x, y, width, height = map(float, box)
    corners = (x, y, x + width, y + height)
    inside = all(
        -_SLACK <= value <= side + _SLACK
        for value, side in zip(corners, (*size, *size), strict=True)
    )
    if not inside or width < 0 or height < 0:
        problem = f"has the bbox {box}, which leaves its picture of {size[0]} × {size[1]}"
        raise GroundTruthError(where, field, problem, "mend the box, or the picture's size")
    thousandths = [
        round(coords.LAST_BIN * min(max(value / side, 0.0), 1.0))
        for value, side in zip(corners, (*size, *size), strict=True)
    ]
    return {"desc": names[number], "bbox_2d": thousandths}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
