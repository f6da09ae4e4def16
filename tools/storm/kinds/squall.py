"""The storm's job: short phases with names, a checkpoint a step, a result that only a run without
a lost or doubled step has. Also notes when it ran, so that two at once cannot go unseen.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from engine.contract.kind import Kind

if TYPE_CHECKING:
    from engine.run.session import Attempt


class Config(BaseModel):
    """A chain of hashes, one link a step."""

    model_config = ConfigDict(extra="forbid")

    steps: int = 3
    seed: int = 0
    notes: str
    """Directory of the storm's own notes."""
    pace_s: float = 0.02
    """Seconds that each phase takes."""


def link(before: str, step: int) -> str:
    """The chain after one more step."""
    return hashlib.sha256(f"{before}:{step}".encode()).hexdigest()


def chain(seed: int, steps: int) -> str:
    """What a whole run must come to."""
    value = str(seed)
    for step in range(1, steps + 1):
        value = link(value, step)
    return value


def run(attempt: Attempt) -> dict[str, Any]:
    """One attempt: bring-up, then sampling, training and a checkpoint for each step."""
    from engine.run.checkpoint import CheckpointStore  # noqa: PLC0415 - the cockpit imports this file too

    config = attempt.config
    assert isinstance(config, Config)
    notes = Path(config.notes)
    with _alone(notes, attempt):
        _send_away(notes, attempt)
        store = CheckpointStore(attempt.run, attempt.warn)
        found = store.newest()
        value = (found.path / "chain").read_text() if found else str(config.seed)
        first = found.step if found else 0
        attempt.events.write("started", resumed_from=first or None)
        for step in range(first + 1, config.steps + 1):
            _phase(attempt, "sampling", step, config.pace_s)
            _phase(attempt, "training", step, config.pace_s)
            value = link(value, step)
            attempt.events.write("progress", phase="checkpoint-write", step=step)
            store.publish(step, partial(_write, value), {})
            attempt.events.write("metric", step=step, values={"chain/length": float(step)})
            attempt.events.sync()
        return {"kind": "squall", "chain": value}


def _write(value: str, folder: Path) -> None:
    """Several files, so that a kill finds a half-written checkpoint."""
    for number in range(4):
        (folder / f"part-{number}").write_bytes(os.urandom(20_000))
        time.sleep(0.003)
    (folder / "chain").write_text(value)


def _phase(attempt: Attempt, name: str, step: int, seconds: float) -> None:
    from engine.run.stop import check_abort  # noqa: PLC0415 - the cockpit imports this file too

    attempt.events.write("progress", phase=name, step=step)
    _note(Path(attempt.config.notes), attempt, "alive")  # type: ignore[attr-defined]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check_abort()
        time.sleep(0.002)


def _send_away(notes: Path, attempt: Attempt) -> None:
    """A grandchild in a session of its own: nothing that ends the engine's group ends it."""
    child = subprocess.Popen(["sleep", "900"], start_new_session=True)
    (notes / f"grandchild-{attempt.job.job_id}").write_text(str(child.pid))


@contextmanager
def _alone(notes: Path, attempt: Attempt) -> Iterator[None]:
    """Two locks that die with the process: one of the lane, one of the job."""
    names = (f"lane-{os.environ['NIGHTLANE_LANE']}", f"job-{attempt.job.job_id}")
    held = [os.open(notes / f"{name}.alone", os.O_RDWR | os.O_CREAT) for name in names]
    for name, handle in zip(names, held, strict=True):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _note(notes, attempt, f"twice on {name}")
    _note(notes, attempt, "begin")
    yield
    _note(notes, attempt, "end")


def _note(notes: Path, attempt: Attempt, what: str) -> None:
    """One line in one write: appends of several processes do not mix."""
    line = {
        "what": what,
        "lane": os.environ["NIGHTLANE_LANE"],
        "job": attempt.job.job_id,
        "attempt": attempt.job.attempt,
        "t": time.clock_gettime(time.CLOCK_BOOTTIME),
    }
    with (notes / "intervals.jsonl").open("ab", buffering=0) as stream:
        stream.write(json.dumps(line).encode() + b"\n")


KIND = Kind(
    name="squall",
    summary="Short phases, made to be interrupted.",
    config=Config,
    entry=f"{__name__}:run",
)
