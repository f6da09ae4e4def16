"""Which file of completions it is, by its name and first line, and its completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.evaluate.completions import Completion, read_rollouts, refuse, rows_of
from engine.evaluate.logs import inspect, lm_eval


class Read(NamedTuple):
    """What a file holds."""

    completions: Sequence[Completion]
    said: Sequence[str] = ()
    """What was left out, a sentence each."""


def read(path: Path) -> Read:
    """Raises RLLoopError for a file that holds none, or that cannot be read."""
    by_name: dict[str, Callable[[Path], Read]] = {
        ".jsonl": _lines,
        ".eval": lambda path: Read(*inspect.read(path)),
        ".json": lambda path: Read(*inspect.read(path)),
    }
    reader = by_name.get(path.suffix)
    if reader is None:
        remedy = (
            "name a held-out file of a run, samples_*.jsonl of lm-evaluation-harness, or a log of "
            "Inspect (.eval, .json)"
        )
        refuse(path, "is no file of completions by its name", remedy)
    found = reader(path)
    if not found.completions:
        refuse(path, "holds no completion", "name another file")
    _check_ids(path, found.completions)
    return found


def _lines(path: Path) -> Read:
    first: Any = next((row for _, row in rows_of(path)), {})
    if "doc_id" in first and "resps" in first:
        return Read(lm_eval.read(path))
    return Read(read_rollouts(path))


def _check_ids(path: Path, completions: Sequence[Completion]) -> None:
    """A row and sample that stands twice would count twice."""
    seen: set[tuple[str, int]] = set()
    for one in completions:
        if (one.id, one.sample) in seen:
            problem = f"holds sample {one.sample} of row {one.id!r} twice"
            refuse(path, problem, "name the file of one evaluation, written once")
        seen.add((one.id, one.sample))
