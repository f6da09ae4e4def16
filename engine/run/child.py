"""A child process that answers one question: JSON on stdin, one line of JSON on stdout.

What the code behind it prints goes nowhere, so that stdout holds the answer alone. Bounded in time
and memory by itself too, should whoever asked be gone. Knows no question.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any


def answer_from_stdin(limit_s: int, memory_gb: int, answered: Callable[[Any], bytes]) -> None:
    """Ends the process after `limit_s` seconds; past `memory_gb` what runs gets a MemoryError."""
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    signal.alarm(limit_s)
    _limit_memory(memory_gb << 30)
    line = answered(json.loads(sys.stdin.buffer.read()))
    with os.fdopen(answer, "wb") as stream_of_answer:
        stream_of_answer.write(line)


def _limit_memory(size: int) -> None:
    """Of what is written to, not of addresses: torch reserves far more of those than it uses."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
