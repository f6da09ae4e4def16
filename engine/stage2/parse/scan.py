"""Scan: where the first top-level JSON object of a text opens, closes, and holds its entries.

One pass over the bytes. Strings exist only inside an object: before one opens, a quote or an
apostrophe is a character of the prose that a model may lead in with. There braces and brackets
count, inside an object those outside strings; a `}` also ends brackets left open inside it, so a
list that the model forgot to close spoils its own entry and no other.
Separators are not judged: an entry is a value at brace depth 1, under the string before it.
An entry in the payload's own spelling is taken in one step, with the same result.
Knows no token, no object key's meaning and no JSON value; `parse` judges what stands here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_LEXEME = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # a string
    rb'|["{}\[\]]'  # a lone quote opens a string that never ends
    rb'|[^\s"{}\[\]:,]++',  # a bare word: number, true, or noise
    re.DOTALL,
)
_BRACKET = re.compile(rb"[{}\[\]]")
"""All that counts outside objects."""
_COLON = re.compile(rb"\s*+:")
_COORD = rb'"(<\|coord_(?:0|[1-9][0-9]{0,2})\|>)"'
_OUR_ENTRY = re.compile(
    rb'[\s,:]*+("object_[1-9][0-9]{0,8}"): '
    rb'(\{"desc": "([^"\\\x00-\x1f]*+)", "bbox_2d": \[' + rb", ".join([_COORD] * 4) + rb"\]\})"
)
"""An entry exactly as the payload writes it, with nothing in its description to unescape."""


class Entry(NamedTuple):
    """One entry of the object, as byte ranges."""

    key: bytes | None
    """The key as it is spelled, quotes included; None for a value without one."""
    key_start: int
    start: int
    end: int
    """The value is bytes [start, end); empty for a key that another key follows."""
    is_object: bool
    """Only a value in braces can be cut behind."""
    desc: tuple[int, int] | None = None
    """Content of the string under `"desc"`, without its quotes."""
    list_strings: tuple[tuple[int, int], ...] = ()
    """Contents of the strings that stand in a list directly inside the value."""
    is_ours: bool = False
    """Spelled as the payload spells it: what it says stands in `desc` and `list_strings`."""


@dataclass(slots=True)
class Scan:
    """What one pass over a text found."""

    opening: int | None = None
    """Offset of the `{` of the first top-level object; None when there is none."""
    closing: int | None = None
    """Offset of the `}` that closes it; None when the text ends before."""
    entries: list[Entry] = field(default_factory=list)
    """In order, up to the last value in braces; what stands behind it is unfinished."""


def scan(text: bytes) -> Scan:
    """Find the first top-level object of `text`. Never raises."""
    run = _Run(text)
    take = run.steps.get
    at = 0
    while not run.done:
        if run.awaits_key():
            at = run.our_entries(at)
        lexeme = (_LEXEME if run.braces else _BRACKET).search(text, at)
        if lexeme is None:
            break
        start, at = lexeme.span()
        take(text[start], run.bare_word)(start, at)
    return run.found


_QUOTE, _OPEN, _CLOSE, _LIST, _UNLIST = b'"{}[]'
_IN_OBJECT = [_OPEN, _OPEN]
_IN_LIST = [_OPEN, _OPEN, _LIST]


class _Run:
    """The state of one pass: open brackets, and what is known of the entry being read."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.found = Scan()
        self.done = False
        self.stack: list[int] = []
        self.braces = 0  # of the stack's brackets
        self.unkept: list[Entry] = []  # values that are no object, kept once an object follows
        self.steps: Mapping[int, Callable[[int, int], None]] = {
            _QUOTE: self._string,
            _OPEN: self._open,
            _CLOSE: self._close,
            _LIST: self._list,
            _UNLIST: self._unlist,
        }
        """What to do with a lexeme at [start, end), by its first byte."""
        self._forget_key()
        self._begin_value(0)

    def awaits_key(self) -> bool:
        """Whether a whole entry could stand here."""
        return not self.has_colon and self._between_entries()

    def our_entries(self, at: int) -> int:
        """Take the entries from `at` on that are in our own spelling; where they end."""
        text = self.text
        while found := _OUR_ENTRY.match(text, at):
            (_, at), (key_start, key_end), (start, end), desc, *list_strings = found.regs
            key = text[key_start:key_end]
            self._keep(Entry(key, key_start, start, end, True, desc, tuple(list_strings), True))
        return at

    def bare_word(self, start: int, end: int) -> None:
        if self._between_entries() and self.has_colon:
            self._note_value(start, end)

    def _between_entries(self) -> bool:
        return len(self.stack) == 1 and self.found.opening is not None

    def _forget_key(self) -> None:
        self.key: bytes | None = None
        self.key_start = 0
        self.has_colon = False

    def _begin_value(self, start: int) -> None:
        self.value_start = start
        self.desc: tuple[int, int] | None = None
        self.desc_follows = False
        self.list_strings: list[tuple[int, int]] = []

    def _note_value(self, start: int, end: int) -> None:
        """A value that is no object, or none at all: counts if a value in braces follows."""
        self.unkept.append(Entry(self.key, self.key_start, start, end, is_object=False))
        self._forget_key()

    def _string(self, start: int, end: int) -> None:
        if end - start == 1:
            self.done = True  # it never ends: all that follows is inside it
        elif self.stack == _IN_LIST:
            self.list_strings.append((start + 1, end - 1))
        elif self.stack == _IN_OBJECT:
            self._string_in_object(start, end)
        elif self._between_entries():
            self._string_between_entries(start, end)

    def _string_between_entries(self, start: int, end: int) -> None:
        colon = _COLON.match(self.text, end)
        if colon is None and self.has_colon:
            self._note_value(start, end)
            return
        if self.has_colon:
            self._note_value(start, start)  # a key right behind a key: that one has no value
        self.key, self.key_start = self.text[start:end], start
        self.has_colon = colon is not None

    def _string_in_object(self, start: int, end: int) -> None:
        if self.desc_follows:
            self.desc = start + 1, end - 1
            self.desc_follows = False
        else:
            self.desc_follows = self.text[start:end] == b'"desc"'

    def _open(self, start: int, _end: int) -> None:
        if not self.stack:
            self.found.opening = start
        elif self._between_entries():
            self._begin_value(start)
        self.stack.append(_OPEN)
        self.braces += 1

    def _list(self, start: int, _end: int) -> None:
        if self._between_entries():
            self._begin_value(start)
        self.stack.append(_LIST)

    def _unlist(self, _start: int, end: int) -> None:
        if self.stack and self.stack[-1] == _LIST:
            self.stack.pop()
            if self._between_entries() and self.has_colon:
                self._note_value(self.value_start, end)

    def _close(self, start: int, end: int) -> None:
        if not self.braces:
            return
        while self.stack.pop() != _OPEN:
            pass
        self.braces -= 1
        if self.found.opening is None:
            return
        if not self.stack:
            self.found.closing = start
            self.done = True
        elif len(self.stack) == 1:
            self._end_object(end)

    def _end_object(self, end: int) -> None:
        """Brace depth 2 → 1: the entry is finished, and so is everything before it."""
        key_start = self.value_start if self.key is None else self.key_start
        self._keep(
            Entry(
                self.key,
                key_start,
                self.value_start,
                end,
                is_object=True,
                desc=self.desc,
                list_strings=tuple(self.list_strings),
            )
        )

    def _keep(self, entry: Entry) -> None:
        """An object is whole: the values before it count from now on."""
        self.found.entries += [*self.unkept, entry]
        self.unkept.clear()
        self._forget_key()
