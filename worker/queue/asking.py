"""Asks a child process of the engine one question: JSON on its stdin, a line of JSON back.

Bounded in time and in the answer's size, and killed with its group: nothing of it enters this
process. Knows no question.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence


def answer_of(
    command: Sequence[str], question: bytes, *, limit_s: float, most_bytes: int
) -> bytes | None:
    """What the child wrote, all of it or what there was when it ended; None: it took too long.

    Raises OSError where it does not start.
    """
    with tempfile.TemporaryFile() as asked:
        asked.write(question)
        asked.seek(0)
        child = subprocess.Popen(
            command,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing is downloaded, and the accelerator belongs to the lane's own job.
            env=os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
    assert child.stdout is not None, "it was asked for"
    try:
        return _line(child.stdout.fileno(), time.monotonic() + limit_s, most_bytes)
    finally:
        # Before it is waited for: until then the group cannot be anybody else's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def _line(stream: int, until: float, most_bytes: int) -> bytes | None:
    found = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not found.endswith(b"\n") and len(found) < most_bytes:
            if not selector.select(max(0.0, until - time.monotonic())):
                return None
            part = os.read(stream, 65536)
            if not part:
                break
            found += part
    return bytes(found)
