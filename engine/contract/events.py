"""`events.jsonl`: the truth of what was measured.

One JSON object a line: `{"seq", "attempt", "t", "type", …}`. `seq` counts up by one over the
whole life of the run, across attempts; `t` is Unix seconds. The engine alone writes the file.
A torn last line (the writer died inside a write) is no event: readers stop before it and the
next attempt cuts it off.

| type       | fields |
|------------|--------|
| started    | resumed_from: int or null; later steps of earlier attempts (null: all) are void |
| progress   | phase, step, max_steps, and any of the live fields of `Progress` |
| metric     | step, values {series: number}. Series that begin with `warmup/` count warm-up steps |
| gate       | step, split, score, n, ci95 [low, high], temp, selected (is it the best so far) |
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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

EventType = Literal[
    "started",
    "progress",
    "metric",
    "gate",
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
        if self._file.tell() > keep:
            self._file.truncate(keep)

    def write(self, type_: EventType, **fields: Any) -> Event:
        """Append one event in a single write and return it."""
        self._seq += 1
        event: Event = {
            "seq": self._seq,
            "attempt": self.attempt,
            "t": round(time.time(), 3),
            "type": type_,
            **_finite(fields),
        }
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        return event

    def sync(self) -> None:
        """Make what was written survive a power cut; called with each checkpoint."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()


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

        Stops before a line without its newline, and before one that is no JSON object: the
        writer of such a line died inside it, and the next attempt cuts it off.
        """
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except ValueError:
                    return
                if not isinstance(event, dict) or "seq" not in event:
                    return
                self.offset += len(line)
                yield event, self.offset
