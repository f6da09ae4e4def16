"""Pages of a log of any size, by byte offset: its end, a search, its first error.

Reads a window at a time and says how far a search has come. Knows no page and no database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from engine.contract.documents import opened
from engine.contract.run_dir import RunDir
from worker.screen import plain

WINDOW = 64 * 1024
"""Bytes of a page."""
SEARCHED = 64 * 1024 * 1024
"""Bytes that one search reads before it says where it stopped."""
BEFORE_HIT = 2 * 1024
"""Bytes shown before the line that was searched for."""
_CHUNK = 256 * 1024
_OVERLAP = 4096


@dataclass(frozen=True)
class Wanted:
    """What is searched for, in small letters; of a text in small letters its case is no matter."""

    words: Sequence[bytes]
    """One of them stands in every match: looking for them takes a tenth of the pattern's time."""
    pattern: re.Pattern[bytes]

    def first(self, text: bytes, begin: int) -> re.Match[bytes] | None:
        """The first match in a text from a place on, whatever its case."""
        small = text.lower()
        known = any(word in small for word in self.words)
        return self.pattern.search(small, begin) if known else None


ERROR = Wanted(
    (b"traceback (", b"error", b"exception", b"fatal", b"critical", b"killed", b"out of memory"),
    re.compile(
        rb"traceback \(most recent call last\)"
        rb"|(?:error|exception)\b"
        rb"|\b(?:fatal|critical|killed|out of memory)\b"
    ),
)


@dataclass(frozen=True)
class LogLine:
    """One line and where it begins in the file."""

    at: int
    text: str
    hit: bool = False


@dataclass(frozen=True)
class LogPage:
    """A window of one attempt's log."""

    path: Path
    attempt: int
    attempts: Sequence[int]
    """Those with a log."""
    size: int
    lines: Sequence[LogLine]
    written_over: int
    """Lines of this window that a carriage return took back, as of a progress bar; left out."""
    start: int
    end: int
    searched_to: int | None = None
    """Where a search gave up: at the file's end, or at its limit."""

    @property
    def earlier(self) -> int | None:
        """Where the page before begins; None on the first one."""
        return max(0, self.start - WINDOW) if self.start else None

    @property
    def later(self) -> int | None:
        """Where the next page begins; None at the end."""
        return self.end if self.end < self.size else None

    @property
    def hit(self) -> LogLine | None:
        """The line that was searched for."""
        return next((line for line in self.lines if line.hit), None)

    @property
    def after_hit(self) -> int:
        """Where a search for the next one begins."""
        place = next(n for n, line in enumerate(self.lines) if line.hit) + 1
        return self.lines[place].at if place < len(self.lines) else self.end


def read_log(
    run_dir: Path,
    attempt: int | None = None,
    at: int | None = None,
    *,
    find: str = "",
    first_error: bool = False,
) -> LogPage | None:
    """One page: around what is searched for from `at` on, else from `at` on, else the end.

    None while the job (or that attempt) has no log.
    """
    run = RunDir(run_dir)
    numbers = [n for n in range(1, run.latest_attempt() + 1) if run.attempt(n).log.is_file()]
    number = attempt if attempt in numbers else (numbers[-1] if numbers and not attempt else None)
    if number is None:
        return None
    path = run.attempt(number).log
    wanted = ERROR if first_error else _literal(find)
    try:
        with opened(path) as stream:
            size = stream.seek(0, 2)
            found, stopped = _search(stream, wanted, at or 0, size) if wanted else (None, None)
            if found is not None:
                begin = max(0, found - BEFORE_HIT)
            else:
                begin = max(0, size - WINDOW) if at is None else min(at, size)
            start, lines, written_over = _lines(stream, begin, size, found)
    except OSError:
        return None
    end = lines[-1][1] if lines else size
    shown = [line for line, _ in lines]
    searched_to = None if found is not None else stopped
    return LogPage(path, number, numbers, size, shown, written_over, start, end, searched_to)


def may_hold_an_error(path: Path) -> bool:
    """Whether a search for the first error is worth a click; yes for more than one search reads."""
    try:
        known = path.stat()
    except OSError:
        return False
    return known.st_size > SEARCHED or _holds_an_error(path, known.st_size, known.st_mtime_ns)


@lru_cache(maxsize=64)
def _holds_an_error(path: Path, size: int, _written_ns: int) -> bool:
    """Kept while the file stays as it is."""
    try:
        with opened(path) as stream:
            return _search(stream, ERROR, 0, size)[0] is not None
    except OSError:
        return False


def _literal(words: str) -> Wanted | None:
    """Of a letter beyond English ones either case is tried: a log is searched as bytes."""
    if not words:
        return None
    small = words.encode().lower()
    if words.isascii():
        return Wanted((small,), re.compile(re.escape(small)))
    forms = ({form.encode().lower() for form in (c, c.lower(), c.upper())} for c in words)
    either = (b"(?:" + b"|".join(map(re.escape, sorted(form))) + b")" for form in forms)
    return Wanted((b"",), re.compile(b"".join(either)))


def _search(stream: BinaryIO, wanted: Wanted, at: int, size: int) -> tuple[int | None, int]:
    """(offset of the first match from `at` on or None, how far was read)."""
    stop = min(size, at + SEARCHED)
    place = at
    while place < stop:
        stream.seek(place)
        chunk = stream.read(min(_CHUNK, stop - place))
        more = place + len(chunk) < stop
        # The piece before has looked at the first byte; here it tells where a word begins.
        match = wanted.first(chunk, 1 if place > at else 0)
        if match and match.end() == len(chunk) and more:
            place += match.start() - 1  # what follows tells whether the word ends there
            continue
        if match:
            return place + match.start(), place + match.end()
        if len(chunk) <= _OVERLAP:
            break
        place += len(chunk) - (_OVERLAP if more else 0)
    return None, stop


def _lines(
    stream: BinaryIO, begin: int, size: int, hit: int | None
) -> tuple[int, list[tuple[LogLine, int]], int]:
    """(where the first line begins, lines with their ends, how many were written over).

    As a terminal would show them: of a progress bar its last state, unless another one is the hit.
    A line may be cut at the window.
    """
    stream.seek(max(0, begin - 1))
    window = stream.read(WINDOW + 1)
    place = begin
    if begin:
        first = window.find(b"\n")
        if first < 0 or first + 1 >= len(window):
            window = window[1:]  # one line longer than the window
        else:
            place, window = begin + first, window[first + 1 :]
    else:
        window = window[:WINDOW]
    if place + len(window) < size and b"\n" in window:
        window = window[: window.rindex(b"\n") + 1]
    start, found = place, []
    raws = window.splitlines(keepends=True)
    for raw, behind in zip_longest(raws, raws[1:], fillvalue=b""):
        end = place + len(raw)
        here = hit is not None and place <= hit < end
        written_over = raw.endswith(b"\r") and behind.strip()
        if here or not written_over:
            text = plain(raw.rstrip(b"\r\n").decode(errors="replace"))
            found.append((LogLine(place, text, here), end))
        place = end
    return start, found, len(raws) - len(found)
