"""The end of an attempt's engine.log, for the run page and `cockpit logs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.run_dir import RunDir

MOST_BYTES = 64 * 1024
"""Read from the end, whatever the size of the file."""


@dataclass(frozen=True)
class LogTail:
    """The last lines of one attempt's log."""

    path: Path
    attempt: int
    lines: Sequence[str]


def read_log_tail(run_dir: Path, count: int = 40) -> LogTail | None:
    """The newest attempt's last `count` lines; None before a job has a log."""
    run = RunDir(run_dir)
    attempt = run.latest_attempt()
    path = run.attempt(attempt).log
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - MOST_BYTES))
            text = stream.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return None
    lines = text.splitlines()
    if size > MOST_BYTES:
        lines = lines[1:]  # cut somewhere inside
    return LogTail(path, attempt, [_plain(line) for line in lines[-count:]] if count else [])


def _plain(line: str) -> str:
    """Without terminal control: a log line must not move a reader's cursor."""
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
