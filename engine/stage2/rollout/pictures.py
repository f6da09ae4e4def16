"""Pictures on disk: decoded, or refused with what is wrong with them. Knows no record."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, overload

from PIL import ExifTags, Image

UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for a file that is no picture, or a broken one (a PNG: SyntaxError)."""

_SMALLER = 8
"""A JPEG decodes that much smaller in a third of the time, and is read to its end all the same."""


def picture(path: Path) -> Image.Image:
    """All of it, in RGB; its orientation tag is not obeyed. Raises one of `UNREADABLE`."""
    with Image.open(path) as image:
        return in_rgb(image)


def size_of(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the file's head. Raises one of `UNREADABLE`."""
    with Image.open(path) as image:
        return image.size


def in_rgb(image: Image.Image) -> Image.Image:
    """What training sees of an opened file: its first frame, on white where it is transparent.

    Dropping the transparency instead would show whatever colour lies under it, mostly black.
    """
    _require_bytes(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    shown = image.convert("RGBA")
    ground = Image.new("RGBA", shown.size, "white")
    return Image.alpha_composite(ground, shown).convert("RGB")


@dataclass(frozen=True)
class DataURLs(Sequence[str]):
    """Pictures as training sees them, for a server; each is read when it is asked for."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return DataURLs(self.paths[place])
        return _data_url(self.paths[place])


def _data_url(path: Path) -> str:
    """A JPEG goes as it lies there, for everybody reads the same of it; all else as a PNG of what
    training reads: a server would turn it, or lay it on another ground.
    """
    with Image.open(path) as image:
        if image.format == "JPEG" and image.mode == "RGB" and _orientation(image) not in _TURNED:
            kind, content = "jpeg", path.read_bytes()
        else:
            png = io.BytesIO()
            in_rgb(image).save(png, "PNG", compress_level=1)
            kind, content = "png", png.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


class Seen(NamedTuple):
    """A file that was looked at."""

    size: tuple[int, int]
    """Width and height in pixels."""
    turned: bool = False
    """It asks to be shown turned or mirrored, which is not obeyed."""
    transparent: bool = False
    """White shows through it."""
    moves: bool = False
    """It has more frames than the first, which alone is read."""


def look_at(path: Path) -> Seen:
    """After all of it was decoded. Raises one of `UNREADABLE`."""
    with Image.open(path) as image:
        _require_bytes(image)
        width, height = image.size
        moves = image.format != "MPO" and getattr(image, "is_animated", False)  # MPO: a phone's
        image.draft(None, (width // _SMALLER, height // _SMALLER))
        image.load()
        turned = _orientation(image) in _TURNED
        return Seen((width, height), turned, _is_transparent(image), moves)


def _is_transparent(image: Image.Image) -> bool:
    """Somewhere; many a picture has a layer for it that is opaque all over."""
    if not image.has_transparency_data:
        return False
    low, _ = image.convert("RGBA").getchannel("A").getextrema()
    return isinstance(low, int | float) and low < 255


def remedy(error: Exception) -> str:
    """What to do about one of `UNREADABLE`."""
    if isinstance(error, Image.DecompressionBombError):
        return "make it smaller: no model reads as many pixels"
    return "save it again as PNG or JPEG with 8 bits a value"


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
