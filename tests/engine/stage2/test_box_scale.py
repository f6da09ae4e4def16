"""Boxes in another scale than thousandths are said; thousandths are not, however few or small."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.kinds.stage2_ab import KIND
from engine.contract.sources.box_scale import BoxScale
from engine.contract.sources.ground_truth import Box, GTObject
from engine.contract.sources.records import Record
from engine.contract.stage2.config import read_config

SIZES = ((64, 48), (224, 224), (500, 375), (640, 480), (800, 800), (1280, 720), (4000, 3000))
SMALLER = SIZES[:-1]
"""All but those of which a pixel is often no thousandth."""


def records(boxes: list[tuple[Box, tuple[int, int]]]) -> list[Record]:
    return [Record("x.jsonl line 1", (), (GTObject("it", box),), size) for box, size in boxes]


def shares(rng: random.Random, most: float = 1.0) -> tuple[float, float, float, float]:
    """A box anywhere in its picture; a tenth of them is cut off by its border."""
    side = most * rng.choice((0.1, 0.3, 0.6, 1.0))
    x1, y1 = rng.random() * (1 - side * 0.5), rng.random() * (1 - side * 0.5)
    x2, y2 = x1 + side * rng.uniform(0.2, 1), y1 + side * rng.uniform(0.2, 1)
    return x1, y1, min(x2, 1.0), min(y2, 1.0)


def scaled(box: tuple[float, ...], width: float, height: float) -> Box:
    x1, y1, x2, y2 = box
    return round(x1 * width), round(y1 * height), round(x2 * width), round(y2 * height)


def code_of(boxes: list[tuple[Box, tuple[int, int]]]) -> str | None:
    scale = BoxScale()
    assert len(list(scale.passing(records(boxes)))) == len(boxes)
    found = scale.finding()
    return None if found is None else found.code


@pytest.mark.parametrize("size", SMALLER)
def test_pixels_are_said_whatever_the_pictures_size(size: tuple[int, int]) -> None:
    """Wherever no pixel is beyond 999; else the first such line is refused."""
    for seed in range(50):
        rng = random.Random(seed)
        pixels = [(scaled(shares(rng), *size), size) for _ in range(60)]
        told = [(box, size) for box, size in pixels if max(box) <= 999]

        assert code_of(told) == "PIXEL_BOXES"


def test_pixels_of_pictures_of_many_sizes_are_said() -> None:
    """Each box is held against its own picture; a sloppy label beyond it changes nothing."""
    for seed in range(50):
        rng = random.Random(seed)
        boxes = []
        for _ in range(200):
            size = rng.randint(300, 900), rng.randint(300, 900)
            boxes.append((scaled(shares(rng), *size), size))
        boxes[7] = ((0, 0, 950, 950), (300, 300))

        assert code_of(boxes) == "PIXEL_BOXES"


@pytest.mark.parametrize("size", SIZES)
def test_hundredths_are_said(size: tuple[int, int]) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        boxes = [(scaled(shares(rng), 100, 100), size) for _ in range(60)]

        assert code_of(boxes) in ("BOXES_OFF_SCALE", "PIXEL_BOXES" if size == (64, 48) else None)


@pytest.mark.parametrize(
    ("box", "size", "code"),
    [
        ((0, 0, 1, 1), (1280, 720), "BOXES_OFF_SCALE"),  # the whole picture, as a share of it
        ((10, 20, 50, 90), (1280, 720), "BOXES_OFF_SCALE"),
        ((10, 10, 40, 30), (64, 48), "PIXEL_BOXES"),  # two pixels, as thousandths
        ((0, 0, 640, 480), (640, 480), "PIXEL_BOXES"),
    ],
)
def test_twelve_times_the_same_box_is_said_where_it_can_be_told(
    box: Box, size: tuple[int, int], code: str
) -> None:
    assert code_of([(box, size)] * 12) == code


Draw = Callable[[random.Random], tuple[float, float, float, float]]


def corner(x: float, y: float, reach: float) -> Draw:
    """All objects in one corner of their pictures."""

    def draw(rng: random.Random) -> tuple[float, float, float, float]:
        x1, y1, x2, y2 = shares(rng, 0.4)
        return x + reach * x1, y + reach * y1, x + reach * x2, y + reach * y2

    return draw


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 3, 12, 200])
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(shares, id="anywhere"),
        pytest.param(lambda rng: shares(rng, 0.02), id="small"),
        pytest.param(corner(0.0, 0.0, 0.3), id="top left"),
        pytest.param(corner(0.7, 0.7, 0.3), id="bottom right"),
        pytest.param(corner(0.0, 0.7, 0.3), id="bottom left"),
        pytest.param(lambda _: (0.1, 0.1, 0.5, 0.5), id="the same"),
        pytest.param(lambda _: (0.0, 0.0, 1.0, 1.0), id="the whole picture"),
    ],
)
def test_thousandths_are_not_taken_for_anything_else(
    draw: Draw, count: int, size: tuple[int, int]
) -> None:
    """Few objects, small ones, single ones, all of them in one corner."""
    for seed in range(30):
        rng = random.Random(seed)

        assert code_of([(scaled(draw(rng), 999, 999), size) for _ in range(count)]) is None


def test_points_and_no_boxes_are_not_said() -> None:
    assert code_of([]) is None
    assert code_of([((0, 0, 0, 0), (64, 48)), ((5, 5, 5, 5), (64, 48))]) is None
    assert code_of([((10, 10, 40, 30), (64, 48))] * 4) is None  # specks, but too few to tell


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(name: str, box: Any, size: tuple[int, int] = (224, 224)) -> str:
        lines = []
        for i in range(12):
            picture = tmp_path / f"{name}{i}.png"
            Image.new("RGB", size).save(picture)
            row = {"images": [picture.name], "objects": [{"desc": "it", "bbox_2d": box}]}
            lines.append(json.dumps(row | {"width": size[0], "height": size[1]}))
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(lines))
        return str(path)

    return written


def config_of(train: str, val: str) -> Any:
    return read_config(
        {
            "custom": {
                "trainer_variant": "stage2_ab_training",
                "extra": {"rollout_matching": {"rollout_backend": "hf"}},
            },
            "stage2_ab": {
                "schedule": {"b_ratio": 0.5},
                "channel_b": {"semantic_desc_gate": {"enabled": False}},
            },
            "model": {"path": "someone/a-qwen3-vl"},
            "data": {"train_jsonl": train, "val_jsonl": val},
            "training": {"max_steps": 1},
        }
    )


def test_it_is_said_when_the_job_is_sent_of_each_file(write: Callable[..., str]) -> None:
    """The field, the file and what to write; the job may be sent all the same."""
    config = config_of(write("train", [100, 100, 500, 500]), write("val", [5, 10, 60, 98]))

    (said,) = (one for one in KIND.cautions(config) if one.field.startswith("data."))

    assert not [one for one in KIND.check(config) if one.field.startswith("data.")]
    assert said.field == "data.val_jsonl"
    assert "12 boxes within 0 to 100" in said.problem
    assert "round(9.99 * x)" in said.remedy


@pytest.mark.parametrize("box", [[0.1, 0.2, 0.5, 0.9], [0.6, 0.6, 0.3, 0.3], ["0.1", 0, 1, 1]])
def test_shares_of_the_picture_are_refused_by_line(box: Any, write: Callable[..., str]) -> None:
    """Rounded to 0 and 1 they would teach one corner; also as centre, width and height."""
    train = write("train", box)

    (found,) = (
        one for one in KIND.check(config_of(train, train)) if one.field == "data.train_jsonl"
    )

    assert "line 1: objects[0].bbox_2d" in found.problem
    assert "looks like shares of the picture" in found.problem
    assert "round(999 * x)" in found.remedy
