"""`events.jsonl`: the truth of what was measured.

One JSON object a line: `{"seq", "attempt", "t", "type", …}`. `seq` counts up by one over the
whole life of the run, across attempts; `t` is Unix seconds. The engine alone writes the file.
A torn last line (the writer died inside a write) is no event: readers stop before it and the
next attempt cuts it off. A line whose fields are of other types than these (`fault`) is an event
that nobody can use: it is left out, and counted, like a line in the midst that is no event.

| type       | fields |
|------------|--------|
| started    | resumed_from: int or null; later steps of earlier attempts (null: all) are void |
| progress   | phase, step, max_steps, and any of the live fields of `Progress`; bare: it works |
| metric     | step, values {series: number}. Series that begin with `warmup/` count warm-up steps |
| gate       | step, split, score, n, ci95 [low, high], temp, selected (is it the best so far),
|            | values {name: number}: what else was measured, the series `heldout/SPLIT/NAME`;
|            | label: what people call the split, where it is not its name |
| score      | step, score {…}: one `engine.contract.scores.BenchScore`
| checkpoint | step, path (relative to the run directory), seconds |
| sample     | step, split, items [{prompt, completion, reward, reason, advantage}]: a few only |
| span       | name, seconds, step: how long one phase took |
| note       | level (info, warning, error), code, text |
| finished   | status (done, aborted, declined), result {…}: the engine's final result |

This module knows the file; it does not know what the values mean to anybody.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from engine.contract.documents import MAX_LINE, byte_lines, opened

SIGN_OF_LIFE_S = 30.0
"""Longest stretch without an event of an engine that works: then it writes a bare `progress`."""

EventType = Literal[
    "started",
    "progress",
    "metric",
    "gate",
    "score",
    "checkpoint",
    "sample",
    "span",
    "note",
    "finished",
]

PHASES = (
    "lane-bringup",
    "warmup",
    "sampling",
    "training",
    "heldout-gate",
    "teardown",
)


class Progress(TypedDict, total=False):
    """Live fields a progress event may carry into result_json; absent means unchanged."""

    phase: str
    step: int
    max_steps: int
    pool_score: float | None
    last_heldout: float | None
    gate: dict[str, Any] | None
    eta_s: float | None
    base: str
    domain: str
    keep_rate: float
    n_used: int
    adv_spread: float
    trained: bool
    alerts: list[dict[str, Any]]
    """What a person should know about the run so far: [{code, step, text}], oldest first."""
    mem: dict[str, float]
    part: dict[str, Any] | None
    """A long phase within a step: {doing, done, of, left_s}; null once it is over."""
    stage2: dict[str, Any]
    """The last step of a stage-2 run: channel, losses, drops, precision, recall, F1, pack fill."""


Event = dict[str, Any]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; a value that is one becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class EventLog:
    """The engine's pen. Opening it cuts a torn last line off and continues the numbering."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path = path
        self.attempt = attempt
        path.parent.mkdir(parents=True, exist_ok=True)
        self._seq, keep = _last_complete(path)
        self._file = path.open("ab", buffering=0)
        self._written = time.monotonic()
        self._lock = threading.Lock()
        """Who draws ahead in a thread tells of it too."""
        if self._file.tell() > keep:
            self._file.truncate(keep)

    def write(self, type_: EventType, **fields: Any) -> Event:
        """Append one event in a single write and return it."""
        with self._lock:
            self._seq += 1
            event: Event = {
                "seq": self._seq,
                "attempt": self.attempt,
                "t": round(time.time(), 3),
                "type": type_,
                **_finite(fields),
            }
            line = json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            # Half of a surrogate pair, which a model can say, has no bytes: it becomes a question
            # mark.
            self._file.write(line.encode(errors="replace") + b"\n")
            self._written = time.monotonic()
            return event

    @property
    def idle_s(self) -> float:
        """Seconds since the last event."""
        return time.monotonic() - self._written

    def sync(self) -> None:
        """Make what was written survive a power cut; called with each checkpoint."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()


UNREADABLE = "unreadable"
"""The type that stands for a line in the midst of the file which is no event."""

_LARGEST = 2**63 - 1
"""The largest whole number that every reader of an event can hold."""
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def event_of(line: bytes) -> Event | None:
    """One line of the file; None for what is no JSON object with a number.

    What JSON does not know (NaN, infinities) reads as null, what no text can hold (half of a
    surrogate pair) as U+FFFD, whoever wrote it.
    """
    try:
        event = _DECODER.decode(line.decode(errors="replace"))
        if rb"\ud" in line or rb"\uD" in line:
            event = _whole_text(event)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(event, dict) and _fits(event.get("seq"), (int,))
    return event if whole and event["seq"] is not None else None


def _whole_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    return value


_NUMBER = (int, float)
_SHAPES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "started": {"resumed_from": (int,)},
    "progress": {
        "phase": (str,),
        "step": (int,),
        "max_steps": (int,),
        "pool_score": _NUMBER,
        "last_heldout": _NUMBER,
        "gate": (dict,),
        "eta_s": _NUMBER,
        "base": (str,),
        "domain": (str,),
        "keep_rate": _NUMBER,
        "n_used": _NUMBER,
        "adv_spread": _NUMBER,
        "trained": (bool,),
        "alerts": (list,),
        "mem": (dict,),
        "stage2": (dict,),
        "part": (dict,),
    },
    "metric": {"step": (int,), "values": (dict,)},
    "gate": {
        "step": (int,),
        "split": (str,),
        "score": _NUMBER,
        "n": (int,),
        "ci95": (list,),
        "values": (dict,),
    },
    "score": {"step": (int,), "score": (dict,)},
    "finished": {"status": (str,), "result": (dict,)},
}
"""What the fields of each type are made of; each may be null or missing."""


def ends(path: Path) -> Iterator[Event]:
    """How each attempt ended that lived to say so, its result a mapping."""
    for event in usable(path):
        if event["type"] == "finished" and isinstance(event.get("result"), Mapping):
            yield event


def usable(path: Path) -> Iterator[Event]:
    """The whole events of a file, those without a fault."""
    return (event for event, _ in EventReader(path).read() if fault(event) is None)


def fault(event: Event) -> str | None:
    """What keeps an event from being used, in words; None where its fields are what they must be.

    >>> fault({"seq": 7, "attempt": 1, "type": "gate", "step": 2, "ci95": 0.05})
    'event 7 (gate): ci95 is 0.05'
    """
    type_ = event.get("type")
    if type_ == UNREADABLE:
        return f"a line before event {event.get('seq')} is no event"
    if not isinstance(type_, str):
        return f"event {event.get('seq')}: type is {_brief(type_)}"
    if not isinstance(event.get("attempt"), int):
        return f"event {event.get('seq')} ({type_}): attempt is {_brief(event.get('attempt'))}"
    shape = {"attempt": (int,), "t": _NUMBER, **_SHAPES.get(type_, {})}
    for name, types in shape.items():
        value = event.get(name)
        if not _fits(value, types) or (name == "ci95" and not _is_interval(value)):
            return f"event {event.get('seq')} ({type_}): {name} is {_brief(value)}"
    return None


def _fits(value: Any, types: tuple[type, ...]) -> bool:
    if value is None:
        return True
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return False
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    return not isinstance(value, float) or math.isfinite(value)


def _is_interval(value: Any) -> bool:
    """[low, high], or nothing known."""
    return not value or (len(value) == 2 and all(_fits(end, _NUMBER) for end in value))


def _brief(value: Any) -> str:
    shown = "missing" if value is None else repr(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


def _last_complete(path: Path) -> tuple[int, int]:
    """(seq of the last whole event, byte length of the whole events)."""
    seq = length = 0
    for event, end in EventReader(path).read():
        seq, length = int(event["seq"]), end
    return seq, length


class EventReader:
    """Follows a growing `events.jsonl` from a byte offset; the file need not exist yet."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self) -> Iterator[tuple[Event, int]]:
        """Whole events behind the offset as (event, end offset), oldest first.

        Stops before a line without its newline, and before what is no event at the end of the
        file: its writer died inside it, and the next attempt cuts it off. One that another event
        follows is no torn end; it is told of as an event of the type `unreadable`.
        """
        try:
            stream = opened(self.path)
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self.offset)
            unread: list[int] = []
            for line in byte_lines(stream):
                if not line.endswith(b"\n") and len(line) < MAX_LINE:
                    return
                event = event_of(line)
                if event is None:
                    unread.append(len(line))
                    continue
                for length in unread:
                    self.offset += length
                    known = {key: event.get(key) for key in ("seq", "attempt", "t")}
                    yield {**known, "type": UNREADABLE}, self.offset
                unread.clear()
                self.offset += len(line)
                yield event, self.offset
