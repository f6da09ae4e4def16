"""One bench asked by the sampler of every run, as lines of completions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.data.rows import Question
from engine.eval_rerun import parts
from engine.eval_rerun.rows import Sampled, series
from engine.evaluate.bench import EvalUnit
from engine.evaluate.journal import Journal, Line
from engine.evaluate.recorder import EvalRecorder
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.vllm.lane import ServingLane


class Asking(NamedTuple):
    """What an evaluation asks with, whoever answers."""

    config: EvalRerunConfig
    journal: Journal
    recorder: EvalRecorder
    warn: Callable[[str, str], None]
    """(code, sentence)."""

    def begin(self, unit: EvalUnit, one: EvalCheckpoint) -> None:
        """Says what is asked of whom."""
        named = f"{one.label} on {unit.split}" if self.config.benches else unit.name
        self.recorder.asking(named)


def answered(
    how: Asking,
    unit: EvalUnit,
    one: EvalCheckpoint,
    policy: Policy,
    lane: ServingLane | None = None,
) -> list[Line]:
    """Every row that fits, as the journal has it or asked now, of the server on `lane` where there
    is one. Raises RLLoopError, ServerError, Aborted.
    """
    prompts = unit.prompts(policy)
    rows = parts.rows_that_fit(unit, how.config, policy, prompts, how.warn)
    known = how.journal.recall(unit.split, one.step, unit.samples)
    sampler = unit.sampler(policy, prompts, lane)
    size = max(1, unit.batch_size // unit.samples)
    before = how.recorder.done
    how.begin(unit, one)
    for start in range(0, len(rows), size):
        check_abort()
        some, began = rows[start : start + size], time.monotonic()
        missing = [row for row in some if row.id not in known]
        groups = sampler(missing, unit.samples) if missing else []
        for row, group in zip(missing, groups, strict=True):
            known[row.id] = unit.judged(row, group)
        if missing:
            lines = [line for row in missing for line in known[row.id]]
            how.journal.add(unit.split, one.step, lines)
        took, is_last = time.monotonic() - began, start + size >= len(rows)
        told = series([Sampled.of(row, known[row.id]) for row in some])
        how.recorder.answered(len(some), told, took, is_last=is_last)
    how.recorder.done = before + len(unit.rows)
    return how.journal.finish(unit.split, one.step, [row.id for row in rows], known)


def sampled(how: Asking, unit: EvalUnit, rows: Sequence[Question]) -> list[Sampled]:
    """What the journal has of some rows, counted."""
    known = how.journal.recall(unit.split, 0, unit.samples)
    return [Sampled.of(row, known[row.id]) for row in rows if row.id in known]
