"""Records that are held out in name only: which pictures do the files have in common?

A picture is told by its path, links followed; a copy under another name is another picture.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from engine.contract.sources.records import Record, each_record
from engine.contract.stage2.record_form import JSONL, RecordForm

VAL_TRAINED = "VAL_TRAINED"


def pictures(records: Iterable[Record]) -> array[int]:
    """A hash of each picture's path; eight bytes each, to be kept. Of this process alone."""
    return array("q", {hash(image) for record in records for image in record.images})


def first_of(path: Path, limit: int | None, taken: Set[int], form: RecordForm = JSONL) -> str:
    """Line and name of the first picture that is one of `taken`."""
    return next(
        f"{record.where}: {image.name}"
        for record in each_record(path, limit, form=form)
        for image in record.images
        if hash(image) in taken
    )


def val_alert(train: Iterable[Record], val: Sequence[Record]) -> str | None:
    """What a person should know of records that pick the checkpoint and are trained on too."""
    trained = {image for record in train for image in record.images}
    shared = sum(not trained.isdisjoint(record.images) for record in val)
    if not shared:
        return None
    return (
        f"{shared} of the {len(val)} validation records show pictures that are trained on: their "
        "F1 says what is remembered, and picks the checkpoint by it; give data.val_jsonl pictures "
        "of its own, unless the run is to overfit"
    )
