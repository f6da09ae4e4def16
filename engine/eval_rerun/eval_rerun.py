"""`eval_rerun`, from its models to its tables: every row of every bench is answered by every
checkpoint and judged.

A step is a row. What was sampled is in the journal, so an attempt that goes on, after whatever
kill, ends with the same files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.data.rows import Question
from engine.eval_rerun import parts, proof
from engine.eval_rerun.journal import Journal, Line
from engine.eval_rerun.recorder import EvalRecorder
from engine.eval_rerun.rows import Sampled, alerts, tables, write_files
from engine.evaluate.bench import EvalUnit
from engine.evaluate.scores import pass_rates, scores
from engine.models.policy import Policy
from engine.run.checkpoint import CheckpointStore
from engine.run.proof import prove
from engine.run.recorder import Recorder
from engine.run.report import ended, result_fields
from engine.run.session import Attempt
from engine.run.stop import Aborted, check_abort


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt; the final result.

    Raises RLLoopError for what cannot run, and Aborted or Declined with the result so far.
    """
    assert isinstance(attempt.config, EvalRerunConfig)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    return _Run(attempt, attempt.config).execute()


class _Run:
    """The parts of one attempt, wired."""

    def __init__(self, attempt: Attempt, config: EvalRerunConfig) -> None:
        self.attempt, self.config = attempt, config
        said: list[str] = []
        self.units = parts.build_units(config, said.append)
        self.benches = ", ".join(dict.fromkeys(unit.name for unit in self.units))
        self.journal = Journal(attempt.run.rollouts)
        store = CheckpointStore(attempt.run, attempt.warn)
        resumed = store.newest()
        attempt.begin(resumed, base=config.base, domain=self.benches)
        for told in said:
            attempt.note("DATA", told)
        if resumed is None:
            self.journal.forget()
        rows = len(config.scored) * sum(len(unit.rows) for unit in self.units)
        self.proofs = Recorder(attempt, store, resumed=resumed, keep=config.keep_checkpoints)
        self.recorder = EvalRecorder(attempt, self.proofs, resumed, rows)
        self.stops = [*attempt.stopped_before(resumed)]
        self.sampled: list[Sampled] = []
        self.rates: dict[str, Mapping[str, float]] = {}
        """Of the first checkpoint, by the split of each bench."""

    def execute(self) -> dict[str, Any]:
        """Every checkpoint on every bench, then the files and tables."""
        self.recorder.mark()
        try:
            for one in self.config.scored:
                self._score(one)
        except Aborted as stop:
            self.stops.append(self.recorder.done)
            stop.result = self._result() | {"aborted": True}
            raise
        if not self.config.benches:
            for code, text in alerts(self.sampled, self.config):
                self.attempt.warn(code, text)
            write_files(self.attempt.run.root, self.sampled, self.config)
        return ended(self.attempt, self.recorder.done, self._result(), None)

    def _score(self, one: EvalCheckpoint) -> None:
        """One checkpoint on every bench, loaded anew: nothing of the one before stays."""
        policy = parts.open_policy(self.config, one, self.attempt.now)
        self.attempt.peaks.end("lane-bringup")
        for unit in self.units:
            lines = self._answered(unit, one, policy)
            baseline = self.rates.get(unit.split)
            self.rates.setdefault(unit.split, pass_rates(lines, unit.worth[0][0]))
            facts = parts.facts(unit, one, self.config)
            found = scores(
                facts, lines, unit.worth, unit.samples, rates=baseline, bands=self.config.bands
            )
            self.recorder.scored([*found])

    def _answered(self, unit: EvalUnit, one: EvalCheckpoint, policy: Policy) -> list[Line]:
        """Every row, as the journal has it or asked now."""
        prompts = unit.prompts(policy)
        rows = parts.rows_that_fit(unit, self.config, policy, prompts, self.attempt.warn)
        if not self.rates:
            prove(self.proofs, proof.checks(unit, policy, prompts, rows))
        known = self.journal.recall(unit.split, one.step, unit.samples)
        sampler = unit.sampler(policy, prompts)
        size = max(1, self.config.rollout_batch // unit.samples)
        before = self.recorder.done
        for start in range(0, len(rows), size):
            check_abort()
            some, began = rows[start : start + size], time.monotonic()
            missing = [row for row in some if row.id not in known]
            if missing:
                now = f"{one.label} on {unit.split}" if self.config.benches else unit.name
                self.recorder.asking(now)
                groups = sampler(missing, unit.samples)
                fresh = {r.id: unit.judged(r, g) for r, g in zip(missing, groups, strict=True)}
                self.journal.add(unit.split, one.step, [x for mine in fresh.values() for x in mine])
                known |= fresh
            self._count(some, known, time.monotonic() - began, is_last=start + size >= len(rows))
        self.recorder.done = before + len(unit.rows)
        return self.journal.finish(unit.split, one.step, rows, known)

    def _count(
        self,
        rows: Sequence[Question],
        known: Mapping[str, Sequence[Line]],
        took: float,
        *,
        is_last: bool,
    ) -> None:
        told = [Sampled.of(row, known[row.id]) for row in rows]
        if not self.config.benches:
            self.sampled += told
        self.recorder.answered(told, took, is_last=is_last)

    def _result(self) -> dict[str, Any]:
        passk = {} if self.config.benches else {"passk": tables(self.sampled, self.config)}
        return {
            **result_fields(self.attempt, self.recorder.done, self.recorder.seconds),
            "base": self.config.base,
            "adapter": self.config.adapter_init,
            "upstream": {"bench": self.benches},
            **passk,
            "scores": self.recorder.short(),
            "lineage_card": self.recorder.card(self.stops),
            "aborted": False,
        }
