"""Text that a model wrote, with what one would not see made visible. Knows no page.

Line ends, tabs, blanks at a line's end, control and direction characters become marks of their
own; the rest stays as it is, and is escaped where it is put into a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

MOST = 2000
"""Characters shown of a text before the middle is left out."""
_TAIL = 300
"""Of them, those of its end."""

_HIDDEN = re.compile(
    "\n|\t| +(?=\n|\\Z)"
    "|[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    "\ufeff\ufff9-\ufffc\U000e0000-\U000e007f]"
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffc\U000e0000-\U000e007f]"
)
"""Of them those that are no blank and join no letters: all that a text one reads is marked for."""


@dataclass(frozen=True)
class Piece:
    """A stretch of text, or a mark that stands for a character one cannot see."""

    text: str
    meaning: str | None = None
    """Of a mark, in words; None for plain text."""


@dataclass(frozen=True)
class Visible:
    """A text ready to be shown."""

    head: list[Piece]
    tail: list[Piece]
    """The end, where the middle was left out; else empty."""
    left_out: int
    """Characters in between."""
    length: int


def visible(text: str, most: int = MOST) -> Visible:
    """The text with its marks; of a long one the beginning and the end.

    >>> [piece.text for piece in visible("a\\tb ").head]
    ['a', '→', '\\t', 'b', '·']
    """
    if len(text) <= most:
        return Visible(list(_pieces(text)), [], 0, len(text))
    head, tail = text[: most - _TAIL], text[-_TAIL:]
    return Visible(list(_pieces(head)), list(_pieces(tail)), len(text) - most, len(text))


def marked(text: str) -> Markup:
    """The text as HTML, escaped; control and direction characters as marks, blanks as they are.

    >>> marked("a <b>\u202e")
    Markup('a &lt;b&gt;<span class="mark" title="character U+202E">U+202E</span>')
    """
    return Markup("").join(_marked_text(text))


def _marked_text(text: str) -> Iterator[Markup]:
    at = 0
    for control in _CONTROL.finditer(text):
        yield escape(text[at : control.start()])
        yield from (_MARK.format(piece.meaning, piece.text) for piece in _marked(control[0]))
        at = control.end()
    yield escape(text[at:])


_MARK = Markup('<span class="mark" title="{}">{}</span>')


def _pieces(text: str) -> Iterator[Piece]:
    at = 0
    for found in _HIDDEN.finditer(text):
        if found.start() > at:
            yield Piece(text[at : found.start()])
        yield from _marked(found[0])
        at = found.end()
    if at < len(text):
        yield Piece(text[at:])


def _marked(hidden: str) -> Iterator[Piece]:
    if hidden == "\n":
        yield Piece("↵", "line end")
        yield Piece("\n")
    elif hidden == "\t":
        yield Piece("→", "tab")
        yield Piece("\t")
    elif hidden[0] == " ":
        yield Piece("·" * len(hidden), f"{len(hidden)} blanks at the end")
    else:
        code = ord(hidden)
        shown = chr(0x2400 + code) if code < 0x20 else f"U+{code:04X}"
        yield Piece(shown, f"character U+{code:04X}")
