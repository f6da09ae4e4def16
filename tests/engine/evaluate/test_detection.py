"""The detection measure: COCO's numbers by pycocotools, F1 at IoU 0.5, classes, sizes, crowds."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from engine.contract.sources.ground_truth import Box, GTObject
from engine.evaluate.detection import Answered, Said, area_of, measure

CAT, DOG = GTObject("cat", (0, 0, 499, 499)), GTObject("dog", (500, 500, 999, 999))
SIZE = (640, 480)


def said(*objects: GTObject) -> list[Said]:
    return [Said(one.desc, one.box) for one in objects]


def test_all_found_is_one_and_nothing_said_is_zero() -> None:
    """No prediction at all is a score of 0, not a missing one."""
    full = measure([Answered(SIZE, [CAT, DOG], said(CAT, DOG))])
    empty = measure([Answered(SIZE, [CAT, DOG], [])])

    assert (full.ap, full.ap50, full.f1, full.mean_iou) == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert (empty.ap, empty.ap50, empty.f1, empty.mean_iou) == (0.0, 0.0, 0.0, 0.0)
    assert [one.ap for one in empty.by_class] == [0.0, 0.0]


def test_pictures_without_an_object_have_no_map() -> None:
    """What is said there is wrong all the same."""
    found = measure([Answered(SIZE, [], said(CAT))])

    assert (found.ap, found.f1, found.said, found.unknown) == (None, 0.0, 1, 1)


@pytest.mark.requirement("EX-26")
def test_the_numbers_are_those_of_pycocotools_on_coco_files(tmp_path: Path) -> None:
    """The same boxes written as COCO's two files, in pixels, and read by COCO's own program."""
    rng = random.Random(7)
    pictures = [_scene(rng) for _ in range(40)]

    found = measure(pictures)

    stats = _by_files(pictures, tmp_path)
    ours = [found.ap, found.ap50, found.ap75, *(one.ap for one in found.by_size)]
    assert ours == [pytest.approx(value, abs=1e-9) for value in stats[:6]]
    assert found.ar100 == pytest.approx(stats[8], abs=1e-9)
    low, high = found.ap_ci95
    assert low < stats[0] < high
    assert 0.05 < stats[0] < 0.95, "a score at an end would prove little"


def _scene(rng: random.Random) -> Answered:
    size = (rng.randint(100, 900), rng.randint(100, 900))
    objects = [GTObject(rng.choice(["cat", "dog", "cup"]), _box(rng)) for _ in range(4)]
    near = [
        Said(one.desc, _moved(one.box, rng), rng.random()) for one in objects if rng.random() < 0.8
    ]
    stray = [Said("dog", _box(rng), rng.random())]
    return Answered(size, objects, near + stray)


def _box(rng: random.Random) -> Box:
    x1, y1 = rng.randint(0, 800), rng.randint(0, 800)
    return x1, y1, x1 + rng.randint(20, 199), y1 + rng.randint(20, 199)


def _moved(box: Box, rng: random.Random) -> Box:
    x1, y1, x2, y2 = (min(999, max(0, k + rng.randint(-12, 12))) for k in box)
    return x1, y1, max(x1, x2), max(y1, y2)


def _by_files(pictures: Sequence[Answered], folder: Path) -> list[float]:
    names = {"cat": 17, "dog": 18, "cup": 47}
    truth: dict[str, list[object]] = {"images": [], "annotations": [], "categories": []}
    truth["categories"] = [{"id": number, "name": name} for name, number in names.items()]
    answers = []
    for number, picture in enumerate(pictures, 1000):
        truth["images"].append({"id": number})
        for one in picture.objects:
            box = _xywh(one.box, picture.size)
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": number,
                    "category_id": names[one.desc],
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
        answers += [
            {
                "image_id": number,
                "category_id": names[one.desc],
                "bbox": _xywh(one.box, picture.size),
                "score": one.score,
            }
            for one in picture.said
        ]
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "answers.json").write_text(json.dumps(answers))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(folder / "truth.json"))
        judged = COCOeval(coco, coco.loadRes(str(folder / "answers.json")), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return [float(value) for value in judged.stats]


def _xywh(box: Box, size: tuple[int, int]) -> list[float]:
    x1, y1, x2, y2 = box
    return [
        x1 / 999 * size[0],
        y1 / 999 * size[1],
        (x2 - x1) / 999 * size[0],
        (y2 - y1) / 999 * size[1],
    ]


def test_areas_are_pixels_of_the_original_picture() -> None:
    """The same thousandths are small in a small picture and large in a large one."""
    box = GTObject("cat", (0, 0, 499, 499))
    found = measure([Answered((60, 60), [box], []), Answered((600, 600), [box], said(box))])

    assert area_of(box.box, (60, 60)) == pytest.approx((60 * 499 / 999) ** 2)
    assert [(one.name, one.objects, one.f1) for one in found.by_size] == [
        ("small", 1, 0.0),
        ("medium", 0, 0.0),
        ("large", 1, 1.0),
    ]
    assert [one.ap for one in found.by_size] == [0.0, None, pytest.approx(1.0)]


def test_f1_asks_for_the_class_and_counts_what_no_class_has() -> None:
    """The right box under another name is one wrong and one missed; spelling aside."""
    picture = Answered(SIZE, [CAT, DOG], [Said(" CAT ", CAT.box), Said("wolf", DOG.box)])

    found = measure([picture])

    assert (found.precision, found.recall, found.f1) == (0.5, 0.5, 0.5)
    assert found.unknown == 1
    assert [(one.name, one.f1) for one in found.by_class] == [("cat", 1.0), ("dog", 0.0)]


def test_f1_pairs_as_many_as_can_be() -> None:
    """A prediction near two objects does not take the one that another needs."""
    near = GTObject("cat", (0, 0, 100, 100))
    beside = GTObject("cat", (0, 30, 100, 130))
    both, one_only = Said("cat", (0, 15, 100, 115)), Said("cat", (0, 0, 100, 90))

    found = measure([Answered((999, 999), [near, beside], [both, one_only])])

    assert found.f1 == 1.0


def test_what_lies_in_a_crowd_is_not_wrong() -> None:
    """COCO's rule: crowds are no objects, and predictions inside them are left out."""
    inside = Said("cat", (600, 600, 700, 700))
    crowd = GTObject("cat", (550, 550, 999, 999))

    excused = measure([Answered(SIZE, [CAT], [*said(CAT), inside], [crowd])])
    wrong = measure([Answered(SIZE, [CAT], [*said(CAT), inside])])

    assert (excused.f1, excused.ap) == pytest.approx((1.0, 1.0))
    assert wrong.precision == 0.5


def test_more_than_a_hundred_boxes_a_picture_are_too_many_for_coco() -> None:
    """The first hundred by score count: with equal scores, as they were said."""
    stray = [Said("cat", (i, 900, i + 1, 901)) for i in range(100)]

    assert measure([Answered(SIZE, [CAT], [*stray, *said(CAT)])]).ap == 0.0
    assert measure([Answered(SIZE, [CAT], [*said(CAT), *stray])]).ap == pytest.approx(1.0)


def test_pictures_of_one_name_are_drawn_together_for_the_interval() -> None:
    """A picture that stands in twenty records is one observation, not twenty."""
    hit, miss = Answered(SIZE, [CAT], said(CAT)), Answered(SIZE, [CAT], [])
    apart = measure([hit, miss] * 20)
    together = measure([one._replace(name="a.png") for one in [hit, miss] * 20])

    low, high = apart.f1_ci95
    assert low < apart.f1 < high
    assert together.f1_ci95 == (together.f1, together.f1)
