"""`eval_rerun`, from its model to its tables: every row is answered n times and judged.

A step is one batch of rows. What it sampled is in the journal, so an attempt that goes on, after
whatever kill, ends with the same files.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.data.rows import Question, load
from engine.eval_rerun import parts, proof
from engine.eval_rerun.journal import Journal
from engine.eval_rerun.rows import Sampled, alerts, tables, write_files
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
        bench = load(config.data)
        self.bench, self.journal = bench.name, Journal(attempt.run.rollouts)
        self.store = CheckpointStore(attempt.run, attempt.warn)
        self.resumed = self.store.newest()
        attempt.begin(self.resumed, base=config.base, domain=bench.name)
        for told in bench.said:
            attempt.note("DATA", told)
        if self.resumed is None:
            self.journal.forget()
        self.policy = parts.open_policy(config, attempt.now)
        self.prompts = parts.build_prompts(config, self.policy)
        self.rows = parts.rows_that_fit(
            config, self.policy, self.prompts, bench.questions, attempt.warn
        )
        self.sampler = parts.build_sampler(config, self.policy, self.prompts)
        self.reward = parts.build_reward(config)
        self.recorder = Recorder(
            attempt, self.store, resumed=self.resumed, keep=config.keep_checkpoints
        )
        self.stops = [*attempt.stopped_before(self.resumed)]
        self.seconds = 0.0 if self.resumed is None else float(self.resumed.state["seconds"])
        self.done: list[Sampled] = []
        attempt.peaks.end("lane-bringup")

    @property
    def steps(self) -> Sequence[Sequence[Question]]:
        """The rows that fill one batch of the sampler, step by step."""
        size = max(1, self.config.rollout_batch // self.config.samples)
        return [self.rows[start : start + size] for start in range(0, len(self.rows), size)]

    def execute(self) -> dict[str, Any]:
        """Every row, then the files and tables."""
        if self.resumed is None:
            self._checkpoint(0)
        last, steps = 0, self.steps
        try:
            prove(self.recorder, proof.checks(self.config, self.policy, self.prompts, self.rows))
            for number, tasks in enumerate(steps, 1):
                check_abort()
                self._step(number, tasks, len(steps))
                last = number
        except Aborted as stop:
            self.stops.append(last)
            stop.result = self._result(last) | {"aborted": True}
            raise
        for code, text in alerts(self.done, self.config):
            self.attempt.warn(code, text)
        write_files(self.attempt.run.root, self.done, self.config)
        return ended(self.attempt, last, self._result(last), None)

    def _step(self, number: int, tasks: Sequence[Question], most: int) -> None:
        """Sampled and judged now, or as the journal has it."""
        began = time.monotonic()
        found = self.journal.recall(number, tasks, self.config.samples)
        if found is None:
            self.attempt.progress(phase="sampling", step=number - 1, max_steps=most)
            groups = self.sampler(tasks, self.config.samples)
            pairs = zip(tasks, groups, strict=True)
            found = [[*parts.judged(self.reward, task, group)] for task, group in pairs]
            self.journal.write(number, [line for lines in found for line in lines])
        self.done += [Sampled.of(*pair) for pair in zip(tasks, found, strict=True)]
        if self.resumed is not None and number <= self.resumed.step:
            return
        took = time.monotonic() - began
        self.seconds += took
        fresh = self.done[-len(tasks) :]
        rates = [row.pass_rate for row in fresh if row.pass_rate is not None]
        solved = {"passk/pass_at_1": statistics.fmean(rates)} if rates else {}
        self.attempt.metric(
            number,
            {
                **solved,
                "passk/parsed": statistics.fmean(row.parsed for row in fresh),
                "passk/truncated": statistics.fmean(row.truncated for row in fresh),
                "passk/rows": len(self.done),
                "time/step_s": took,
            },
        )
        self._checkpoint(number)
        self.attempt.progress_with_memory(
            {"step": number, "max_steps": most, "eta_s": round(took * (most - number), 1)}
        )

    def _checkpoint(self, number: int) -> None:
        """A mark without weights: the journal holds what was found."""
        state = {"rows": len(self.done), "seconds": round(self.seconds, 3)}
        self.recorder.checkpoint(number, state, self._mark)
        self.recorder.keep_selected(0, 0)

    def _mark(self, folder: Path) -> None:
        (folder / "rows.txt").write_text(f"{len(self.done)}\n", "utf-8")

    def _result(self, step: int) -> dict[str, Any]:
        found = tables(self.done, self.config)
        score = found["pass_at"][0]["value"] if found["pass_at"] else 0.0
        card = self.recorder.card({0: score}, {}, self.stops)
        return {
            **result_fields(self.attempt, step, self.seconds),
            "base": self.config.base,
            "adapter": self.config.adapter_init,
            "upstream": {"bench": self.bench},
            "passk": found,
            "lineage_card": card,
            "aborted": False,
        }
