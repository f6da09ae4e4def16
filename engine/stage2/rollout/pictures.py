"""Pictures on disk: decoded, or refused with what is wrong with them. Knows no record."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from PIL import ExifTags, Image

UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for a file that is no picture, or a broken one (a PNG: SyntaxError)."""

_SMALLER = 8
"""A JPEG decodes that much smaller in a third of the time, and is read to its end all the same."""


def picture(path: Path) -> Image.Image:
    """All of it, in RGB; its orientation tag is not obeyed. Raises one of `UNREADABLE`."""
    with Image.open(path) as image:
        _require_bytes(image)
        return image.convert("RGB")


class Seen(NamedTuple):
    """A file that was looked at."""

    size: tuple[int, int]
    """Width and height in pixels."""
    turned: bool
    """It asks to be shown turned or mirrored, which is not obeyed."""


def look_at(path: Path) -> Seen:
    """After all of it was decoded. Raises one of `UNREADABLE`."""
    with Image.open(path) as image:
        _require_bytes(image)
        width, height = image.size
        image.draft(None, (width // _SMALLER, height // _SMALLER))
        image.load()
        return Seen((width, height), _orientation(image) in _TURNED)


_TURNED = range(2, 9)
"""EXIF orientations beside 1, upright; others mean nothing."""


def _orientation(image: Image.Image) -> object:
    """As the file says; a tag that cannot be read does no harm, for nothing reads it."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except (*UNREADABLE, struct.error):
        return None


def _require_bytes(image: Image.Image) -> None:
    """Pillow cuts off at 255 what is deeper: a depth map or an X-ray would be all white."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"more than 8 bits a value (Pillow's mode {image.mode})")
