"""Scoring the checkpoints of a run as they appear: what is asked, and which of them wait for it.

The worker writes into the run's directory which steps are still to be scored, and the engine keeps
their checkpoints meanwhile. Starts nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from engine.contract.documents import read_json_object
from engine.contract.evaluate.benches import EvalBench, named_twice
from engine.contract.run_dir import COMPLETE, CompleteMarker, RunDir, write_json
from engine.contract.section import Section, refusal

LAST = -100
"""The lowest priority that a job can have: behind everything that trains."""


_WEIGHTS = (".safetensors", ".bin", ".pt")


class EvaluateConfig(Section):
    """Checkpoints are scored as they appear, the baseline first, by jobs of kind `eval_rerun`."""

    benches: list[EvalBench] = Field(min_length=1, max_length=64)
    """What they are scored on, as in an `eval_rerun`: `[{task: gsm8k_cot, source: test.jsonl}]`."""
    every: int = Field(1, ge=1)
    """Only checkpoints whose step is a multiple of it, and at the end the last one and the one that
    is published."""
    priority: int = Field(LAST, ge=-100, le=100)
    """Of those jobs; by default behind everything else."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if (twice := named_twice(self.benches)) is not None:
            raise refusal(["benches"], twice, f"has {twice!r} twice; give each bench its own name")
        return self


class Awaited(NamedTuple):
    """One list of benches, and how far its scores are."""

    every: int
    scored: Collection[int]
    """Steps that have their scores, or will never have any."""

    def wants(self, step: int) -> bool:
        """Whether the checkpoint of the step is still to be scored."""
        return step % self.every == 0 and step not in self.scored


def tell_awaited(run: RunDir, watches: Iterable[Awaited]) -> None:
    """Write down what a run's checkpoints wait for, where it changed."""
    said = {"watches": [{"every": one.every, "scored": sorted(one.scored)} for one in watches]}
    if said != _read(run):
        write_json(run.awaited, said)


def awaited(run: RunDir, steps: Collection[int]) -> set[int]:
    """Those of the steps whose checkpoints are still to be scored."""
    watches = [_watch(one) for one in _read(run).get("watches", ())]
    return {step for step in steps if any(one.wants(step) for one in watches)}


def wanted_steps(
    complete: Sequence[int], every: int, *, over: bool, published: int | None
) -> list[int]:
    """Of a run's whole checkpoints those that are scored, the baseline first. None of them while it
    has no baseline and may yet get one.

    >>> wanted_steps([0, 2, 4, 5], 4, over=False, published=None)
    [0, 4]
    >>> wanted_steps([0, 2, 4, 5], 4, over=True, published=2)
    [0, 2, 4, 5]
    """
    if 0 not in complete and not over:
        return []
    ends = {max(complete, default=0), published} if over else set()
    return [step for step in sorted(complete) if step % every == 0 or step in ends]


def weights_mark(checkpoint: Path) -> str:
    """What its weights hash to, as its `complete.json` says: a step that a run went back behind and
    reached again is another checkpoint. Raises OSError or ValueError where that cannot be read.
    """
    files = CompleteMarker.model_validate(read_json_object(checkpoint / COMPLETE)).files
    weights = sorted(one for one in files.items() if one[0].endswith(_WEIGHTS)) or sorted(
        files.items()
    )
    return hashlib.sha256(json.dumps(weights).encode()).hexdigest()[:16]


def _watch(told: Any) -> Awaited:
    return Awaited(int(told["every"]), frozenset(told["scored"]))


def _read(run: RunDir) -> dict[str, Any]:
    try:
        return read_json_object(run.awaited)
    except OSError:
        return {}
