"""A prompt as it will be asked, shown before a job is queued."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """The first row of a source."""

    name: str
    """Of the source."""
    row: str
    """Its id."""
    text: str
    note: str = ""
    """What is not known of it yet."""
