"""What an engine wrote into `events.jsonl`, newest first, a page at a time from the file's end.

Knows no meaning of an event: a page shows its type, its step and the rest as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.contract.events import event_of
from engine.contract.run_dir import RunDir

MOST = 100
WINDOW = 128 * 1024
READ = 4 * 1024 * 1024
"""Bytes that one page reads at most, when a filter finds little."""
MOST_TEXT = 300
TYPES = (
    "started", "progress", "metric", "gate", "checkpoint", "sample", "span", "note", "finished",
)  # fmt: skip
_APART = {"seq", "attempt", "t", "type", "step"}


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
    """The events that end before a byte (None: the newest), all or of one type."""
    page = EventPage()
    try:
        with RunDir(run_dir).events.open("rb") as stream:
            size = stream.seek(0, 2)
            end = size if before is None else min(before, size)
            least = max(0, end - READ)
            while end > 0:
                begin = max(0, end - WINDOW)
                stream.seek(begin)
                window = stream.read(end - begin)
                cut = window.find(b"\n") + 1 if begin else 0
                if begin and not cut:
                    end = begin  # one event longer than the window: left out
                    continue
                end = _take(page, window[cut:], begin + cut, only)
                page.older = end or None
                if len(page.rows) >= MOST or end <= least:
                    break
    except OSError:
        return page
    return page


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
        if event is None or (only and event.get("type") != only):
            return None
        at, step = event.get("t"), event.get("step")
        return EventRow(
            seq=int(event["seq"]),
            attempt=int(event["attempt"]),
            at=float(at) if isinstance(at, int | float) else None,
            type=str(event["type"]),
            step=step if isinstance(step, int) else None,
            text=_text({key: value for key, value in event.items() if key not in _APART}),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _text(rest: Mapping[str, Any]) -> str:
    if set(rest) == {"level", "code", "text"}:
        return f"{rest['level']} {rest['code']}: {rest['text']}"[:MOST_TEXT]
    said = ", ".join(f"{key} {_value(value)}" for key, value in rest.items())
    return said if len(said) <= MOST_TEXT else said[: MOST_TEXT - 1] + "…"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
