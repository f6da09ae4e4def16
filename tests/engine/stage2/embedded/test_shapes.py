"""Drawn shapes: what a record says is what the picture shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from engine.contract.sources.records import read_records
from engine.stage2.embedded import shapes
from engine.stage2.embedded.shapes import COLOURS, Shape, Style


def test_grid_lines_are_bins_of_the_inclusive_borders() -> None:
    """Line 0 is bin 0, the last one bin 999, the middle one 500 of an even grid."""
    assert Shape("red", (0, 4, 8, 8)).box(8) == (0, 500, 999, 999)


def test_each_box_holds_its_colour_and_the_outside_does_not(tmp_path: Path) -> None:
    """Pixels inside a record's box have the colour of its description."""
    style = Style(most_objects=3)
    path = shapes.write(tmp_path, "train", shapes.distinct(30, 5, style), style)

    for record in read_records(path):
        image = Image.open(record.images[0]).convert("RGB")
        for gt in record.objects:
            colour = COLOURS[gt.desc.split()[0]]
            x1, y1, x2, y2 = (round(k / 999 * style.pixels) for k in gt.box)
            inside = {image.getpixel((x, y)) for x in range(x1, x2) for y in range(y1, y2)}
            assert inside == {colour}
            edge = [(x1 - 1, y1), (x2, y1), (x1, y1 - 1), (x1, y2)]
            met = [at for at in edge if min(at) >= 0 and max(at) < style.pixels]
            assert all(image.getpixel(at) != colour for at in met)


def test_scenes_depend_on_the_seed_alone_and_none_stands_twice() -> None:
    """Held-out scenes are new ones, whatever was drawn before."""
    style = Style()
    train = shapes.distinct(300, 1, style)

    heldout = shapes.distinct(300, 1, style, without=train)

    assert shapes.distinct(300, 1, style) == train
    assert len({*train, *heldout}) == 600


def test_more_scenes_than_there_are_is_refused() -> None:
    """Rather than one twice."""
    tiny = Style(cells=2, smallest=2)

    with pytest.raises(ValueError, match="ask for fewer"):
        shapes.distinct(100, 0, tiny)


def test_a_records_form_is_the_one_stage2_reads(tmp_path: Path) -> None:
    """images, objects, width, height; integers in 0..999."""
    style = Style()
    path = shapes.write(tmp_path, "val", shapes.distinct(1, 0, style), style)

    record = json.loads(path.read_text())

    assert record.keys() == {"images", "objects", "width", "height"}
    assert record["images"] == ["val/00000.png"]
    assert (record["width"], record["height"]) == (64, 64)
