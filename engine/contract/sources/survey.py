"""What one pass over the records of a file tells, before any of them trains."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.contract.sources.box_scale import BoxScale, FileCaution
from engine.contract.sources.heldout import pictures
from engine.contract.sources.records import Record
from engine.contract.sources.split_pictures import SplitPictures


class Survey(NamedTuple):
    """What is kept of a look at a record file."""

    pictures: array[int]
    objects: int
    cautions: Sequence[FileCaution]


def survey(records: Iterable[Record]) -> Survey:
    """Each record seen once and none kept."""
    scale, split, counted = BoxScale(), SplitPictures(), Counted()
    found = pictures(counted.passing(split.passing(scale.passing(records))))
    said = (scale.finding(), split.finding())
    return Survey(found, counted.objects, [one for one in said if one is not None])


class Counted:
    """How many objects the records have."""

    def __init__(self) -> None:
        self.objects = 0

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records."""
        for record in records:
            self.objects += len(record.objects)
            yield record
