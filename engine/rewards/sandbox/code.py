"""The program in a completion, and the verdict on a box's report. Runs nothing itself."""

from __future__ import annotations

from typing import Any

from engine.rewards.judgement import Reason, Verdict
from engine.rewards.sandbox import box
from engine.rewards.text.fences import fenced
from engine.rewards.text.reading import without_thinking

_PYTHON = frozenset({"python", "py", "python3", "py3"})
"""Of the language of a fence; what installs or runs the program is often shown before it."""
LONGEST_PROGRAM = 100_000
"""Characters; more is no answer."""


def program(completion: str, stop: str = "[DONE]") -> str | None:
    """The first block fenced as Python, else the first without a language, else the first; with no
    fence everything before `stop`. None when that is empty.

    >>> program("Sure:\\n```python\\nx = 1\\n```")
    'x = 1'
    """
    code = block(completion)
    return usable(without_thinking(completion).partition(stop)[0] if code is None else code)


def block(completion: str) -> str | None:
    """The fenced block that `program` takes; None without a fence."""
    return fenced(without_thinking(completion), _PYTHON)


def usable(code: str) -> str | None:
    """The program, unless it is empty or too long."""
    return code if code.strip() and len(code) <= LONGEST_PROGRAM else None


def run_all(job: dict[str, Any], answer: str) -> Verdict:
    """1 when every test passes, else 0. Raises BoxTimeoutError and BoxError."""
    report = box.run(job)
    if report.timed_out:
        return Verdict(0.0, answer, Reason.TIMEOUT)
    return Verdict.of(report.total > 0 and report.passed == report.total, answer)
