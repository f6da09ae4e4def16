"""Split pictures: one picture in several records of a file, each with other objects.

A record says all that is to be found in its picture. Detection tables often have a line for each
box instead; read so, every line would teach that the other boxes are not there. Two questions about
one picture are another matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.contract.sources.box_scale import FileCaution
from engine.contract.sources.records import Record

PICTURES_SPLIT = "PICTURES_SPLIT"


class SplitPictures:
    """Sees each record once and keeps two numbers of it, of this process alone."""

    def __init__(self) -> None:
        self._objects: dict[int, int] = {}
        self._split: set[int] = set()
        self._first = ""

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen on its way."""
        for record in records:
            asked = hash((record.images, repr(record.messages)))
            said = hash(record.objects)
            if self._objects.setdefault(asked, said) != said:
                self._first = self._first or record.where
                self._split.add(asked)
            yield record

    def finding(self) -> FileCaution | None:
        """None where each picture has all of its objects in one record."""
        if not self._split:
            return None
        return FileCaution(
            PICTURES_SPLIT,
            f"shows {len(self._split)} of its pictures in several records with other objects, as "
            f"{self._first} does: each teaches its own as all that there are",
            "put all objects of a picture into one record, or ask for them in different messages",
        )
