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
"""Characters; a longer one is not run, which the verdict says."""


def program(completion: str, stop: str = "[DONE]") -> str | Verdict:
    """The first block fenced as Python, else the first without a language, else the first; with no
    fence everything before `stop`. The verdict when there is nothing to run.

    >>> program("Sure:\\n```python\\nx = 1\\n```")
    'x = 1'
    """
    code = block(completion)
    return usable(without_thinking(completion).partition(stop)[0] if code is None else code)


def block(completion: str) -> str | None:
    """The fenced block that `program` takes; None without a fence."""
    return fenced(without_thinking(completion), _PYTHON)


def usable(code: str) -> str | Verdict:
    """The program, or the verdict when it is empty or too long."""
    if not code.strip():
        return Verdict.unparsed()
    if len(code) > LONGEST_PROGRAM:
        told = f"not run: the program has {len(code):,} characters, over {LONGEST_PROGRAM:,}"
        return Verdict.unparsed(told)
    return code


def run_all(job: dict[str, Any], answer: str) -> Verdict:
    """1 when every test passes, else 0. Raises BoxTimeoutError and BoxError."""
    report = box.run(job)
    if report.timed_out:
        return Verdict(0.0, answer, Reason.TIMEOUT)
    return Verdict.of(report.total > 0 and report.passed == report.total, answer)
