"""Detection as its users measure it: COCO's mAP by pycocotools itself, F1 at IoU 0.5, mean IoU.

Boxes come in thousandths (0 to 999) and count in pixels of the original picture, k / 999 × side,
and so do areas. Classes are the descriptions of the ground truth, letter case and spaces aside; a
prediction of another description is in no class: COCO's mAP leaves it out, F1 counts it as wrong,
and `unknown` says how many there were. Torch-free; knows no text and no model.

mAP: Lin et al. 2014 (https://cocodataset.org/#detection-eval), IoU 0.50 to 0.95, 100 boxes a
picture at most.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.optimize import linear_sum_assignment

from engine.contract.intervals import bootstrap
from engine.contract.sources.ground_truth import Box, GTObject
from engine.contract.stage2 import coords
from engine.evaluate.pooled_f1 import Counts, by_picture, draws, f1, f1_interval, percentiles

IOU = 0.5
"""From which a prediction found an object, for F1 and mean IoU."""
SIZES = ("small", "medium", "large")
_EDGES = (32**2, 96**2)
"""Square pixels: below the first small, from the second large (COCO's)."""
_DRAWS = 100
"""Of the interval of mAP."""
_AT_50, _AT_75 = 0, 5
"""Places of these IoUs among COCO's ten."""


class Said(NamedTuple):
    """One predicted box."""

    desc: str
    box: Box
    score: float = 1.0
    """Orders the predictions of a class for mAP; F1 does not look at it."""


class Answered(NamedTuple):
    """One picture: what is there, and what was said."""

    size: tuple[int, int]
    """Width and height of the original, in pixels."""
    objects: Sequence[GTObject]
    said: Sequence[Said]
    crowd: Sequence[GTObject] = ()
    """Regions of many objects that nobody drew one by one: no prediction there is wrong."""
    name: str = ""
    """Pictures of one name are drawn together for the interval of F1; "" is a name of its own."""


class ClassScore(NamedTuple):
    """Of the objects of one description, or of one size."""

    name: str
    ap: float | None
    """COCO's mAP of it; None without an object."""
    f1: float
    objects: int
    said: int


@dataclass(frozen=True)
class Detection:
    """What the answers to some pictures are worth. Shares are of one; None: nothing of the kind."""

    ap: float | None
    """mAP at IoU 0.50 to 0.95; None without an object."""
    ap50: float | None
    ap75: float | None
    ar100: float | None
    """Recall at IoU 0.50 to 0.95 with 100 boxes a picture."""
    draws: tuple[tuple[float, float, float], ...]
    """mAP, and AP at IoU 0.50 and 0.75, of pictures drawn again (bootstrap), the same draws for the
    same pictures: differences of two measures of them are paired. Empty without an object."""
    f1: float
    f1_ci95: tuple[float, float]
    precision: float
    recall: float
    mean_iou: float
    """Of the objects that were found; 0 where none was."""
    mean_iou_ci95: tuple[float, float]
    unknown: int
    """Predictions of a description that no object has."""
    objects: int
    said: int
    pictures: int
    by_class: tuple[ClassScore, ...]
    """Most objects first."""
    by_size: tuple[ClassScore, ...]
    """An object counts by its own area, a prediction that found none by its own."""

    @property
    def ap_ci95(self) -> tuple[float, float]:
        """Percentile bootstrap over pictures; (0, 1) without a draw."""
        return self.ap_ci95_at(0)

    def ap_ci95_at(self, column: int) -> tuple[float, float]:
        """The same of one column of `draws`."""
        return percentiles([one[column] for one in self.draws]) if self.draws else (0.0, 1.0)


def ap_lift_ci95(before: Detection, after: Detection) -> tuple[float, float]:
    """95 % interval of the difference of mAP on the same pictures; (-1, 1) without an object."""
    pairs = [*zip(before.draws, after.draws, strict=True)]
    return percentiles([b[0] - a[0] for a, b in pairs]) if pairs else (-1.0, 1.0)


def measure(pictures: Sequence[Answered]) -> Detection:
    """Without a picture all shares are 0 or None, and the intervals say nothing."""
    return _Measured(pictures).found


def area_of(box: Box, size: tuple[int, int]) -> float:
    """Square pixels of the original picture.

    >>> area_of((0, 0, 999, 999), (640, 480))
    307200.0
    """
    *_, width, height = _pixels(box, size)
    return width * height


def class_of(desc: str) -> str:
    """What two spellings of one class share.

    >>> class_of(" Traffic  Light ")
    'traffic light'
    """
    return " ".join(desc.split()).casefold()


class _Found(NamedTuple):
    """One object or prediction after F1's matching."""

    name: str
    """Its class."""
    size: str
    hit: float | None
    """The IoU of the pair; None where it stayed alone."""
    is_object: bool


class _Measured:
    def __init__(self, pictures: Sequence[Answered]) -> None:
        self.pictures = pictures
        self.names: dict[str, str] = {}
        """Class → its first spelling."""
        for picture in pictures:
            for one in picture.objects:
                self.names.setdefault(class_of(one.desc), one.desc)
        self.ids = {name: number for number, name in enumerate(self.names, 1)}
        self.matched = [list(_matched(picture)) for picture in pictures]

    @property
    def found(self) -> Detection:
        counts = [_counts(one) for one in self.matched]
        hits, said, there = (sum(one[i] for one in counts) for i in range(3))
        names = self._names()
        ious = [_ious_of(one) for one in self.matched]
        stats = self._stats
        return Detection(
            ap=stats[0],
            ap50=stats[1],
            ap75=stats[2],
            ar100=stats[8],
            draws=tuple(self._drawn_again()),
            f1=f1(hits, said, there),
            f1_ci95=f1_interval(by_picture(counts, names)),
            precision=hits / max(said, 1),
            recall=hits / max(there, 1),
            mean_iou=math.fsum(itertools.chain(*ious)) / max(hits, 1),
            mean_iou_ci95=_mean_interval(ious, names),
            unknown=sum(
                class_of(one.desc) not in self.ids for shown in self.pictures for one in shown.said
            ),
            objects=there,
            said=said,
            pictures=len(self.pictures),
            by_class=tuple(self._by_class()),
            by_size=tuple(self._by_size()),
        )

    def _by_class(self) -> Iterator[ClassScore]:
        groups: dict[str, list[_Found]] = {name: [] for name in self.ids}
        for found in self.matched:
            for one in found:
                groups.get(one.name, []).append(one)
        for name in sorted(groups, key=lambda one: -sum(x.is_object for x in groups[one])):
            hits, said, there = _counts(groups[name])
            ap = self._ap_of_class(self.ids[name])
            yield ClassScore(self.names[name], ap, f1(hits, said, there), there, said)

    def _by_size(self) -> Iterator[ClassScore]:
        for place, size in enumerate(SIZES):
            some = [one for found in self.matched for one in found if one.size == size]
            hits, said, there = _counts(some)
            yield ClassScore(size, self._stats[3 + place], f1(hits, said, there), there, said)

    @cached_property
    def _judged(self) -> COCOeval | None:
        """None where COCO's own program would refuse: no object, or no prediction of a class."""
        truth, answers = self._truth(), list(self._answers())
        if not truth["annotations"] or not answers:
            return None
        with contextlib.redirect_stdout(io.StringIO()):  # it prints
            coco = COCO()
            coco.dataset = truth  # type: ignore[assignment]
            coco.createIndex()
            judged = COCOeval(coco, coco.loadRes(answers), "bbox")
            judged.evaluate()
            judged.accumulate()
            judged.summarize()
        return judged

    @cached_property
    def _stats(self) -> list[float | None]:
        """COCO's twelve numbers; what it has no object for (-1) is None."""
        if self._judged is None:
            nothing = 0.0 if self._truth()["annotations"] else None
            return [nothing] * 12
        return [None if value < 0 else float(value) for value in self._judged.stats]

    def _ap_of_class(self, number: int) -> float | None:
        if self._judged is None:
            return 0.0
        place = self._judged.params.catIds.index(number)
        return _mean(self._judged.eval["precision"][:, :, place, 0, -1])

    def _drawn_again(self) -> Iterator[tuple[float, float, float]]:
        """mAP by COCO's own accumulation over pictures drawn again, all records of one together."""
        judged = self._judged
        if judged is None:
            if self.ids:  # nothing was said, whichever pictures are drawn
                yield from [(0.0, 0.0, 0.0)] * _DRAWS
            return
        count, classes = len(self.pictures), range(len(judged.params.catIds))
        of_class = [judged.evalImgs[4 * c * count : (4 * c + 1) * count] for c in classes]
        again: Any = COCOeval.__new__(COCOeval)
        again.params = again._paramsEval = _all_sizes(judged.params)  # noqa: SLF001 - as evaluate() does
        places = list(self._places().values())
        with contextlib.redirect_stdout(io.StringIO()):
            for drawn in draws(len(places), _DRAWS):
                records = [place for group in drawn for place in places[group]]
                again.params.imgIds = [*range(len(records))]
                again.evalImgs = [images[place] for images in of_class for place in records]
                again.accumulate()
                precision = again.eval["precision"]
                some = (precision, precision[_AT_50], precision[_AT_75])
                whole, at_50, at_75 = (_mean(one) or 0.0 for one in some)
                yield whole, at_50, at_75

    def _places(self) -> Mapping[str, Sequence[int]]:
        """The records of each picture."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self._names()):
            found.setdefault(name, []).append(place)
        return found

    def _names(self) -> list[str]:
        return [one.name or f"#{place}" for place, one in enumerate(self.pictures)]

    def _truth(self) -> dict[str, Any]:
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number, picture in enumerate(self.pictures, 1):
            images.append({"id": number, "width": picture.size[0], "height": picture.size[1]})
            for crowd, one in (
                *((0, one) for one in picture.objects),
                *((1, one) for one in picture.crowd),
            ):
                category = self.ids.get(class_of(one.desc))
                if category is not None:
                    annotations.append(
                        {
                            "id": len(annotations) + 1,
                            "image_id": number,
                            "category_id": category,
                            "bbox": _pixels(one.box, picture.size),
                            "area": area_of(one.box, picture.size),
                            "iscrowd": crowd,
                        }
                    )
        categories = [{"id": number, "name": name} for name, number in self.ids.items()]
        return {"images": images, "annotations": annotations, "categories": categories}

    def _answers(self) -> Iterator[dict[str, Any]]:
        for number, picture in enumerate(self.pictures, 1):
            for one in picture.said:
                category = self.ids.get(class_of(one.desc))
                if category is not None:
                    yield {
                        "image_id": number,
                        "category_id": category,
                        "bbox": _pixels(one.box, picture.size),
                        "score": one.score,
                    }


def _all_sizes(params: Any) -> Any:
    """Of COCO's parameters those of mAP itself."""
    own = type(params)(iouType="bbox")
    own.catIds = params.catIds
    own.areaRng, own.areaRngLbl, own.maxDets = params.areaRng[:1], ["all"], params.maxDets[-1:]
    return own


def _mean(values: NDArray[np.float64]) -> float | None:
    """COCO writes -1 where there is no object."""
    kept = values[values > -1]
    return float(kept.mean()) if kept.size else None


def _pixels(box: Box, size: tuple[int, int]) -> list[float]:
    """x, y, width and height."""
    x1, y1, x2, y2 = (k / coords.LAST_BIN for k in box)
    width, height = size
    return [x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height]


def _matched(picture: Answered) -> Iterator[_Found]:
    """Class by class: as many pairs from IOU on as there can be, of those the nearest."""
    named = [*(one.desc for one in picture.objects), *(one.desc for one in picture.said)]
    classes = dict.fromkeys(map(class_of, named))
    for name in classes:
        objects = [one.box for one in picture.objects if class_of(one.desc) == name]
        said = [one.box for one in picture.said if class_of(one.desc) == name]
        crowd = [one.box for one in picture.crowd if class_of(one.desc) == name]
        iou_NM = _ious(said, objects, picture.size)
        pairs = _pairs(iou_NM)
        found = {j: float(iou_NM[i, j]) for i, j in pairs}
        for j, box in enumerate(objects):
            yield _Found(name, _size_of(box, picture.size), found.get(j), is_object=True)
        inside = _ious(said, crowd, picture.size, crowd=True) >= IOU
        excused = [bool(row.any()) for row in inside]
        hit = {i: (j, float(iou_NM[i, j])) for i, j in pairs}
        for i, box in enumerate(said):
            if i in hit:  # counts where its object does
                j, iou = hit[i]
                yield _Found(name, _size_of(objects[j], picture.size), iou, is_object=False)
            elif not excused[i]:
                yield _Found(name, _size_of(box, picture.size), None, is_object=False)


def _pairs(iou_NM: NDArray[np.float64]) -> list[tuple[int, int]]:
    near = np.asarray(iou_NM >= IOU)
    rows, columns = linear_sum_assignment(near * (min(iou_NM.shape) + iou_NM), maximize=True)
    return [(i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if near[i, j]]


def _ious(
    said: Sequence[Box], others: Sequence[Box], size: tuple[int, int], *, crowd: bool = False
) -> NDArray[np.float64]:
    """[N, M]; of a crowd the share of the prediction that lies inside."""
    if not said or not others:
        return np.zeros((len(said), len(others)))
    ours, theirs = (np.array([_pixels(box, size) for box in some]) for some in (said, others))
    return np.asarray(mask.iou(ours, theirs, [crowd] * len(others)), dtype=np.float64)


def _ious_of(found: Sequence[_Found]) -> list[float]:
    return [one.hit for one in found if one.is_object and one.hit is not None]


def _mean_interval(ious: Sequence[Sequence[float]], names: Sequence[str]) -> tuple[float, float]:
    """95 % of a mean over what stands in pictures, by pictures drawn again."""
    values = [value for some in ious for value in some]
    asked = [name for some, name in zip(ious, names, strict=True) for _ in some]
    return bootstrap(values, asked) if values else (0.0, 1.0)


def _size_of(box: Box, size: tuple[int, int]) -> str:
    area = area_of(box, size)
    return SIZES[sum(area >= edge for edge in _EDGES)]


def _counts(found: Sequence[_Found]) -> Counts:
    hits = sum(one.is_object and one.hit is not None for one in found)
    there = sum(one.is_object for one in found)
    return hits, len(found) - there, there
