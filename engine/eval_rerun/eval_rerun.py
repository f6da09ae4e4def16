"""`eval_rerun`, from its models to its tables: every row of every bench is answered by every
checkpoint and judged.

A step is a row. What was sampled is in the journal, so an attempt that goes on, after whatever
kill, ends with the same files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from engine.contract.evaluate.checkpoints import EvalCheckpoint
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.eval_rerun import by_harness, by_sampler, parts, proof
from engine.eval_rerun.by_sampler import Asking
from engine.eval_rerun.rows import Sampled, alerts, tables, write_files
from engine.eval_rerun.serving import lane_of
from engine.evaluate.bench import EvalUnit
from engine.evaluate.journal import Journal, Line
from engine.evaluate.recorder import EvalRecorder
from engine.evaluate.scores import pass_rates, scores
from engine.models.policy import Policy
from engine.run.checkpoint import CheckpointStore
from engine.run.proof import prove
from engine.run.recorder import Recorder
from engine.run.report import ended, result_fields
from engine.run.session import Attempt
from engine.run.stop import Aborted
from engine.sampling.vllm.lane import ServingLane


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
        journal = Journal(attempt.run.rollouts)
        store = CheckpointStore(attempt.run, attempt.warn)
        resumed = store.newest()
        attempt.begin(resumed, base=config.base, domain=self.benches)
        for told in said:
            attempt.note("DATA", told)
        if resumed is None:
            journal.forget()
        rows = len(config.scored) * sum(len(unit.rows) for unit in self.units)
        self.proofs = Recorder(attempt, store, resumed=resumed, keep=config.keep_checkpoints)
        self.recorder = EvalRecorder(attempt, self.proofs, resumed, rows)
        self.how = Asking(config, journal, self.recorder, attempt.warn)
        self.stops = [*attempt.stopped_before(resumed)]
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
            for code, text in alerts(self._sampled(), self.config):
                self.attempt.warn(code, text)
            write_files(self.attempt.run.root, self._sampled(), self.config)
        return ended(self.attempt, self.recorder.done, self._result(), None)

    def _score(self, one: EvalCheckpoint) -> None:
        """One checkpoint on every bench, loaded anew: nothing of the one before stays."""
        policy = parts.open_policy(self.config, one, self.attempt.now)
        self.attempt.peaks.end("lane-bringup")
        if not self.rates:
            first = self.units[0]
            few = proof.checks(first, policy, first.prompts(policy), first.rows)
            prove(self.proofs, few)
        with lane_of(self.attempt, self.config, one, policy, self.units) as lane:
            self._ask(one, policy, lane)

    def _ask(self, one: EvalCheckpoint, policy: Policy, lane: ServingLane | None) -> None:
        for unit in self.units:
            lines, facts = self._answered(unit, one, policy, lane)
            baseline = self.rates.get(unit.split)
            self.rates.setdefault(unit.split, pass_rates(lines, unit.worth[0][0]))
            found = scores(
                facts,
                lines,
                unit.worth,
                unit.samples,
                rates=baseline,
                bands=self.config.bands,
                weights=unit.weights,
            )
            self.recorder.scored([*found])

    def _answered(
        self, unit: EvalUnit, one: EvalCheckpoint, policy: Policy, lane: ServingLane | None
    ) -> tuple[list[Line], dict[str, Any]]:
        """All completions of a bench, and what its scores share."""
        facts = parts.facts(unit, one, self.config)
        if unit.runner != "harness":
            return by_sampler.answered(self.how, unit, one, policy, lane), facts
        found = by_harness.answered(self.how, unit, one, policy)
        return found.lines, facts | {"version": found.version, "seeds": by_harness.seeds(unit)}

    def _sampled(self) -> list[Sampled]:
        """Of the rows of `data`, as far as they are answered."""
        return by_sampler.sampled(self.how, self.units[0], self.units[0].rows)

    def _result(self) -> dict[str, Any]:
        passk = {} if self.config.benches else {"passk": tables(self._sampled(), self.config)}
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
