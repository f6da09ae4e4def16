"""How a file of stage-2 records is written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

RecordSource = Literal["jsonl", "coco"]


class RecordForm(NamedTuple):
    """Its format, and where its pictures are."""

    source: RecordSource = "jsonl"
    image_dirs: tuple[Path, ...] = ()
    """Of a COCO file; none: beside it."""


JSONL = RecordForm()
