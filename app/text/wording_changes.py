"""Two texts side by side: which words each has that the other has not. Knows no page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from markupsafe import Markup

from app.text.visible import marked

MOST_WORDS = 4000
"""Of one text. Longer ones are compared by line, and those of more lines not at all: the
comparison takes the product of both."""
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_LINE = re.compile(r".*\n|.+\Z")


@dataclass(frozen=True)
class Stretch:
    """A part of a text that both have, or that only this one has."""

    text: str
    changed: bool

    @property
    def html(self) -> Markup:
        """Escaped, with what one cannot see made visible."""
        return marked(self.text)


def changes(first: str, second: str) -> tuple[list[Stretch], list[Stretch]] | None:
    """Each text in stretches; None where they are too long to compare.

    >>> [one.text for one in changes("it is 7", "it is 8")[1] if one.changed]
    ['8']
    """
    for split in (_WORD, _LINE):
        parts = [split.findall(text) for text in (first, second)]
        if max(map(len, parts)) <= MOST_WORDS:
            return _compared(*parts)
    return None


def _compared(first: Sequence[str], second: Sequence[str]) -> tuple[list[Stretch], list[Stretch]]:
    found = SequenceMatcher(None, first, second).get_opcodes()
    return (
        list(_stretches(first, ((tag, a, b) for tag, a, b, _, _ in found))),
        list(_stretches(second, ((tag, a, b) for tag, _, _, a, b in found))),
    )


def _stretches(parts: Sequence[str], spans: Iterator[tuple[str, int, int]]) -> Iterator[Stretch]:
    for tag, start, end in spans:
        if end > start:
            yield Stretch("".join(parts[start:end]), tag != "equal")
