"""Kill an engine at an exact point of its work: the n-th call of a named function.

A child forked from a warm server runs `python -m engine run DIR` in itself with that function
wrapped, and sends itself SIGKILL there. Nothing of this is in the product.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from engine.contract.registry import kinds
from engine.contract.run_dir import RunDir
from tools.run_outcome import add_attempt

LONG_FORM = bool(os.environ.get("NIGHTLANE_LONG"))
"""`make test-resume` kills at all points, everybody else at one for each phase."""
When = Literal["before", "after", "torn"]
DEADLINE_S = 240


@dataclass(frozen=True)
class Point:
    """`torn`: the call writes half of what it would have written."""

    target: str
    """`module:function` or `module:Class.method`."""
    nth: int
    when: When = "before"

    def __str__(self) -> str:
        return f"{self.when} call {self.nth} of {self.target.rpartition(':')[2]}"


def killed_and_resumed(kind: str, recipe: dict[str, Any], root: Path, point: Point) -> RunDir:
    """A run that was killed at a point, and the attempt after it, which is done."""
    run = add_attempt(root, recipe, kind=kind)
    assert attempt(run.root, point) == -signal.SIGKILL, f"never reached: {point}"
    again = add_attempt(root, recipe, kind=kind)
    assert attempt(again.root) == 0
    return again


def unbroken_run(kind: str, recipe: dict[str, Any], root: Path) -> RunDir:
    """The same recipe in one piece."""
    run = add_attempt(root, recipe, kind=kind)
    assert attempt(run.root) == 0
    return run


def attempt(run: Path, point: Point | None = None, *, within_s: float = DEADLINE_S) -> int:
    """Run the newest attempt of a run directory in a child; its exit code, −9 when killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([kind.entry.partition(":")[0] for kind in kinds().values()])
    child = context.Process(target=_run, args=(run, point))
    child.start()
    child.join(within_s)
    assert child.exitcode is not None, f"{run} still runs after {within_s} s"
    code = child.exitcode
    child.close()
    return code


def _run(run: Path, point: Point | None) -> None:
    from engine.__main__ import main  # noqa: PLC0415 - in the child, behind the preloaded torch

    if point is not None:
        _arm(point)
    sys.exit(main(["run", str(run)]))


def _arm(point: Point) -> None:
    module, _, path = point.target.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    setattr(owner, name, _deadly(getattr(owner, name), point))


def _deadly(function: Callable[..., Any], point: Point) -> Callable[..., Any]:
    calls = 0

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != point.nth:
            return function(*args, **kwargs)
        if point.when == "after":
            function(*args, **kwargs)
        elif point.when == "torn":
            _tear(args)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    return wrapped


def _tear(args: tuple[Any, ...]) -> None:
    """Half a line where the writer (an object with a file, or a path) would have put one."""
    if isinstance(args[0], Path):
        args[0].with_name(f".{args[0].name}.tmp").write_text('{"id": "q1", "sam')
    else:
        args[0]._file.write(b'{"seq": 7, "attempt": 1, "ty')
