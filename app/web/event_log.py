"""What an engine wrote into `events.jsonl`, newest first, a page at a time from the file's end.

Knows no meaning of an event: a page shows its type, its step and the rest as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from engine.contract.documents import opened
from engine.contract.events import Event, event_of
from engine.contract.known import real, whole
from engine.contract.run_dir import RunDir

MOST = 100
WINDOW = 128 * 1024
READ = 4 * 1024 * 1024
"""Bytes that one page reads at most, when a filter finds little."""
MOST_TEXT = 300
TYPES = (
    "started", "progress", "metric", "gate", "checkpoint", "sample", "span", "note", "finished",
)  # fmt: skip
_SHOWN_BYTES = 100 + MOST_TEXT
"""Of an event that is not read whole: what stands before its fields, and what is shown of them."""
_APART = {"seq", "attempt", "t", "type", "step"}
_UNREAD = "too long to be read here, or not whole:"
_HEAD = re.compile(
    rb'\{"seq": ?(?P<seq>\d{1,18}), ?"attempt": ?(?P<attempt>\d{1,9}), ?'
    rb'"t": ?(?P<t>\d{1,12}(?:\.\d{1,9})?), ?"type": ?(?P<type>"[a-z]{1,20}"), ?'
)
"""As `EventLog` begins every event."""


@dataclass(frozen=True)
class EventRow:
    """One event."""

    seq: int
    attempt: int
    at: float | None
    type: str
    step: int | None
    text: str


@dataclass
class EventPage:
    """Newest first."""

    rows: list[EventRow] = field(default_factory=list)
    older: int | None = None
    """The byte before which the next page ends; None at the file's beginning."""


def read_events(run_dir: Path, before: int | None = None, only: str | None = None) -> EventPage:
    """The events that end before a byte (None: the newest), all or of one type.

    Reads `READ` bytes, and as many again for an event longer than a window.
    """
    page = EventPage()
    try:
        with opened(RunDir(run_dir).events) as stream:
            size = stream.seek(0, 2)
            end = size if before is None else min(before, size)
            least = max(0, end - READ)
            while end > 0:
                begin, window = _window(stream, end)
                end = _take(page, window, begin, only) if window else begin
                page.older = end or None
                if len(page.rows) >= MOST or end <= least:
                    break
    except OSError:
        return page
    return page


def _window(stream: BinaryIO, end: int) -> tuple[int, bytes]:
    """Where whole events up to a byte begin, and their bytes; always some way before it.

    No bytes: inside an event of which the beginning is too far away for one page.
    """
    begin = max(0, end - WINDOW)
    window = _between(stream, begin, end)
    whole = 0 if begin == 0 else window.find(b"\n", 0, -1) + 1
    if whole or begin == 0:
        return begin + whole, window[whole:]
    least = max(0, begin - READ)
    while begin > least:
        before = max(least, begin - WINDOW)
        found = _between(stream, before, begin).rfind(b"\n")
        if found >= 0 or before == 0:
            return before + found + 1, _between(stream, before + found + 1, end)
        begin = before
    # The next page begins inside the event: its first bytes are among those it reads.
    return begin + _SHOWN_BYTES, b""


def _between(stream: BinaryIO, begin: int, end: int) -> bytes:
    stream.seek(begin)
    return stream.read(end - begin)


def _take(page: EventPage, window: bytes, at: int, only: str | None) -> int:
    """Add a window's events, newest first; returns where the first one taken begins."""
    lines = window.split(b"\n")
    end = at + len(window)
    for line in reversed(lines):
        begin = end - len(line)
        row = _row(line, only) if line else None
        if row is not None:
            page.rows.append(row)
            if len(page.rows) >= MOST:
                return begin
        end = begin - 1
    return at


def _row(line: bytes, only: str | None) -> EventRow | None:
    try:
        event = event_of(line)
        event = _head(line) if event is None else event
        if event is None or (only and event.get("type") != only):
            return None
        at, step = event.get("t"), event.get("step")
        return EventRow(
            seq=int(event["seq"]),
            attempt=int(event["attempt"]),
            at=real(at),
            type=str(event["type"]),
            step=whole(step),
            text=_text({key: value for key, value in event.items() if key not in _APART}),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _head(line: bytes) -> Event | None:
    """Of an event too long for one page, or not whole, what stands at its beginning."""
    found = _HEAD.match(line)
    if found is None:
        return None
    event: Event = {name: json.loads(value) for name, value in found.groupdict().items()}
    rest = line[found.end() : found.end() + MOST_TEXT].decode(errors="replace")
    return event | {_UNREAD: rest}


def _text(rest: Mapping[str, Any]) -> str:
    if set(rest) == {"level", "code", "text"}:
        return f"{rest['level']} {rest['code']}: {rest['text']}"[:MOST_TEXT]
    said = ", ".join(f"{key} {_value(value)}" for key, value in rest.items())
    return said if len(said) <= MOST_TEXT else said[: MOST_TEXT - 1] + "…"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
