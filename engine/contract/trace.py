"""`trace.json`: what a run spent its time on, in the Trace Event Format of Chrome and Perfetto.

A JSON array that is only ever appended to: `[`, then one event and a comma a line. The closing
bracket is left out, which the format allows, so that a file whose writer was killed opens like
any other. Spans are complete events (`ph` X, written when they end, so none is ever unpaired),
counters `C`, moments `i`; `pid` is the attempt. Times are microseconds of Unix time.
`strict_json` is the same as one closed document. Knows the file, not what the spans mean.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import MAX_LINE, UnreadableError, byte_lines, opened, parse_json

_OPEN = b"[\n"
_END = b",\n"
_PIECE = 500
"""Events that are sent at once: a trace may be larger than what a page process should hold."""


class TraceWriter:
    """The engine's pen. Opening the file cuts a torn last line off."""

    def __init__(self, path: Path, attempt: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._pid = attempt
        # One clock for all of a file's events: what lies within a span is drawn within it.
        self._epoch = time.time() - time.monotonic()
        keep = _whole_length(path)
        self._file = path.open("ab", buffering=0)
        if self._file.tell() > keep:
            self._file.truncate(keep)
        if keep == 0:
            self._file.write(_OPEN)
        self._write({"ph": "M", "name": "process_name", "args": {"name": f"attempt {attempt}"}})

    def span(self, name: str, began: float, ended: float, **args: Any) -> None:
        """A stretch of time, in seconds of `time.monotonic`; inside another it is drawn nested."""
        start_us = round((self._epoch + began) * 1e6)
        moment = {"ts": start_us, "dur": round((self._epoch + ended) * 1e6) - start_us}
        self._write({"ph": "X", "name": name, "cat": "run", "args": args, **moment})

    def counter(self, name: str, values: Mapping[str, float]) -> None:
        """Series that share one track, at this moment. What is no finite number is left out."""
        finite = {key: value for key, value in values.items() if math.isfinite(value)}
        if finite:
            self._write({"ph": "C", "name": name, "args": finite, "ts": self._now_us()})

    def mark(self, name: str, **args: Any) -> None:
        """A moment worth finding again: an alert, a checkpoint."""
        self._write({"ph": "i", "s": "p", "name": name, "args": args, "ts": self._now_us()})

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def _now_us(self) -> int:
        return round((self._epoch + time.monotonic()) * 1e6)

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(_encoded({**event, "pid": self._pid, "tid": 1}) + _END)


def read_trace(path: Path) -> Iterator[dict[str, Any]]:
    """The whole events of a trace, oldest first; a torn last line is none."""
    try:
        stream = opened(path)
    except FileNotFoundError:
        return
    with stream:
        if stream.readline(MAX_LINE) != _OPEN:
            return
        for line in byte_lines(stream):
            event = _event(line)
            if event is None:
                return
            yield event


def strict_json(path: Path) -> Iterator[bytes]:
    """The whole events of a trace as one JSON array that any parser reads, in pieces.

    What is no finite number is null, also in a file of a writer that wrote `NaN`.
    """
    events = read_trace(path)
    yield b"["
    before = b"\n"
    while piece := [_encoded(event) for event in itertools.islice(events, _PIECE)]:
        yield before + _END.join(piece)
        before = _END
    yield b"\n]\n"


def _encoded(event: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(event), separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value


class Share(NamedTuple):
    """How long spans of one name took, all together."""

    name: str
    seconds: float
    spans: int


def time_by_span(path: Path) -> Sequence[Share]:
    """Where the time went, the longest first; empty without a trace."""
    totals: dict[str, tuple[float, int]] = {}
    for event in read_trace(path):
        if event.get("ph") == "X":
            seconds, count = totals.get(event["name"], (0.0, 0))
            totals[event["name"]] = (seconds + event["dur"] / 1e6, count + 1)
    shares = [Share(name, seconds, count) for name, (seconds, count) in totals.items()]
    return sorted(shares, key=lambda share: -share.seconds)


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(_END):
        return None
    try:
        event = parse_json(line.removesuffix(_END), constant=float)
    except UnreadableError:
        return None
    return event if isinstance(event, dict) else None


def _whole_length(path: Path) -> int:
    """Bytes up to the end of the last whole event; 0 for a file that is none of ours."""
    if not path.exists():
        return 0
    with opened(path) as stream:
        first = stream.readline(MAX_LINE)
        if first != _OPEN:
            return 0
        length = len(first)
        for line in byte_lines(stream):
            if _event(line) is None:
                return length
            length += len(line)
    return length
