"""A prompt as it will be asked, shown before a job is queued."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """One row of a source."""

    name: str
    """Of the source."""
    row: str
    """Its id."""
    text: str
    note: str = ""
    """What is not known of it yet."""
    which: str = ""
    """`shortest`, `median` or `longest` prompt among the first hundred rows of what trains; empty
    for the first row of a bench."""
    answer: str = ""
    """The answer that its verifier is given; empty where the row has none."""
