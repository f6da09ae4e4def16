"""gzip around a file of rows: unpacked as it is read, within a bound, its faults in words."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import BinaryIO

from engine.contract.documents import MAX_ROWS_BYTES, UnreadableError

ENDING = ".gz"
MAGIC = b"\x1f\x8b"


def unpacked(stream: BinaryIO) -> io.BufferedReader:
    """The bytes inside. Reading them raises UnreadableError where they cannot be had."""
    return io.BufferedReader(_Unpacked(stream), 2**16)


class _Unpacked(io.RawIOBase):
    """A small file can stand for any amount of bytes: so many are read and no more."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._inside, self._left = gzip.GzipFile(fileobj=stream), MAX_ROWS_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inside.read1(len(buffer))
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableError(f"is no whole gzip file ({error})") from None
        self._left -= len(data)
        if self._left < 0:
            raise UnreadableError(f"holds more than {MAX_ROWS_BYTES // 2**30} GiB unpacked")
        buffer[: len(data)] = data
        return len(data)
