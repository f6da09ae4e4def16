"""Width and height of a picture file, from its first bytes: nothing is decoded, no library asked.

PNG, JPEG, WebP, GIF and BMP. Knows no record.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from engine.contract.documents import opened

_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""Of the JPEG markers 0xC0 to 0xCF: tables, and one that is reserved."""


def picture_size(path: Path) -> tuple[int, int] | None:
    """In pixels, as stored; None for another format or a broken file. Raises OSError."""
    with opened(path) as stream:
        head = stream.read(32)
        try:
            found = _size(head, stream)
        except (struct.error, IndexError):
            return None
    return found if found is not None and min(found) > 0 else None


def _size(head: bytes, stream: BinaryIO) -> tuple[int, int] | None:
    width: int
    height: int
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", head[16:24])
    elif head.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack("<HH", head[6:10])
    elif head.startswith(b"BM"):
        width, height = struct.unpack("<ii", head[18:26])
        height = abs(height)  # negative where the rows stand top down
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    elif head.startswith(b"\xff\xd8"):
        return _jpeg(stream)
    else:
        return None
    return width, height


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(
                head[27:30], "little"
            )
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(stream: BinaryIO) -> tuple[int, int] | None:
    """From the first frame's header; what comes before it is passed over."""
    stream.seek(2)
    while True:
        marker = stream.read(1)
        while marker == b"\xff":
            marker = stream.read(1)  # any number of them may stand before a marker
        if not marker:
            return None
        if marker[0] in range(0xD0, 0xDA) or marker == b"\x01":
            continue
        if 0xC0 <= marker[0] <= 0xCF and marker[0] not in _NO_FRAME:
            height, width = struct.unpack(">3xHH", stream.read(7)[:7])
            return width, height
        (length,) = struct.unpack(">H", stream.read(2))
        stream.seek(length - 2, 1)
