"""Drawn shapes: small pictures of coloured rectangles on a grid, with their boxes.

A data set for detection that needs no download: `images/NNNNN.png` and one JSONL in the form that
stage-2 reads. What is drawn depends on the seed and the scene's number alone; held-out scenes are
drawn so that none of them stands in training. Knows no model and no tokenizer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from engine.contract.sources.ground_truth import Box
from engine.contract.stage2 import coords

COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (40, 70, 220),
    "yellow": (235, 205, 40),
}
_TRIES = 50
"""Scenes drawn for one that is new, before we say that there is none."""
_GROUNDS = ((255, 255, 255), (225, 225, 225), (245, 240, 225))


@dataclass(frozen=True, slots=True)
class Style:
    """How scenes are drawn."""

    pixels: int = 64
    """Side of the square picture."""
    cells: int = 64
    """Rectangles begin and end on a grid of so many cells a side.

    A coarse grid leaves most coord tokens without a picture that has them: the model then writes
    tokens that it never read, and stumbles over its own answer.
    """
    most_objects: int = 1
    """Each scene has 1 to so many rectangles, each of its own colour, none on another."""
    smallest: int = 16
    """Fewest cells of a rectangle's side; the most is half of the picture."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One rectangle: its colour and the grid lines x1, y1, x2, y2 it lies between."""

    colour: str
    lines: tuple[int, int, int, int]

    def box(self, cells: int) -> Box:
        """As bins 0..999: grid line 0 is bin 0, the last one bin 999."""
        x1, y1, x2, y2 = (coords.encode(line / cells) for line in self.lines)
        return x1, y1, x2, y2


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture to be: background and shapes, in reading order (top to bottom, left to right)."""

    ground: tuple[int, int, int]
    shapes: tuple[Shape, ...]


def scene(seed: int, number: int, style: Style) -> Scene:
    """The scene of that number; the same for the same three arguments."""
    rng = random.Random(f"shapes:{seed}:{number}")
    wanted = rng.randint(1, style.most_objects)
    colours = rng.sample(sorted(COLOURS), wanted)
    shapes: list[Shape] = []
    for colour in colours:
        shape = Shape(colour, _lines(rng, style))
        # a rectangle that would lie on another is left out: there is always the first one
        if not any(_overlap(shape.lines, other.lines) for other in shapes):
            shapes.append(shape)
    ordered = sorted(shapes, key=lambda shape: (shape.lines[1], shape.lines[0]))
    return Scene(rng.choice(_GROUNDS), tuple(ordered))


def paint(picture: Scene, style: Style) -> Image.Image:
    """The scene as an RGB image of `style.pixels` a side."""
    image = Image.new("RGB", (style.pixels, style.pixels), picture.ground)
    pen = ImageDraw.Draw(image)
    for shape in picture.shapes:
        x1, y1, x2, y2 = (line * style.pixels // style.cells for line in shape.lines)
        pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=COLOURS[shape.colour])  # both ends inclusive
    return image


def record(picture: Scene, image: str, style: Style) -> dict[str, Any]:
    """The scene as a training record; `image` is a path relative to the JSONL."""
    return {
        "images": [image],
        "objects": [
            {"desc": f"{shape.colour} box", "bbox_2d": list(shape.box(style.cells))}
            for shape in picture.shapes
        ],
        "width": style.pixels,
        "height": style.pixels,
    }


def distinct(count: int, seed: int, style: Style, without: Collection[Scene] = ()) -> list[Scene]:
    """`count` scenes, none twice and none of `without`, in the order of their numbers.

    Raises ValueError when the style does not hold so many.
    """
    found: dict[Scene, None] = {}
    taken = set(without)
    for number in range(_TRIES * (count + len(taken))):
        if len(found) == count:
            break
        picture = scene(seed, number, style)
        if picture not in taken:
            found[picture] = None
    if len(found) < count:
        raise ValueError(f"{style} holds fewer than {count} new scenes; ask for fewer")
    return list(found)


def write(folder: Path, name: str, scenes: Sequence[Scene], style: Style) -> Path:
    """Paint the scenes below `folder`; the path of `NAME.jsonl`, which is written last."""
    pictures = folder / name
    pictures.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    for number, picture in enumerate(scenes):
        path = pictures / f"{number:05d}.png"
        paint(picture, style).save(path)
        rows.append(json.dumps(record(picture, f"{name}/{path.name}", style)) + "\n")
    target = folder / f"{name}.jsonl"
    temporary = target.with_suffix(".tmp")
    temporary.write_text("".join(rows), "utf-8")
    temporary.replace(target)
    return target


def _lines(rng: random.Random, style: Style) -> tuple[int, int, int, int]:
    x1, x2 = _stretch(rng, style)
    y1, y2 = _stretch(rng, style)
    return x1, y1, x2, y2


def _stretch(rng: random.Random, style: Style) -> tuple[int, int]:
    length = rng.randint(style.smallest, max(style.smallest, style.cells // 2))
    start = rng.randint(0, style.cells - length)
    return start, start + length


def _overlap(a: Sequence[int], b: Sequence[int]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
