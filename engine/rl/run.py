"""The composition root of `rl_run`: builds the real parts, runs the loop, tells the result.

Order matters: the split stands before anything trains, the step-0 policy (after the warm-up) is
checkpoint, KL reference and baseline at once, and the `report` rows are looked at after the last
gate only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from engine import checkpoint, memory
from engine.attempt import Attempt
from engine.contract.errors import NightlaneError
from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.contract.run_dir import write_json
from engine.data import Bench, load
from engine.evaluate.intervals import PairedComparison, compare
from engine.hooks import Aborted
from engine.models.policy import Policy
from engine.rl.gate import GateResult
from engine.rl.loop import LoopState, RLLoop
from engine.rl.parts import build_gate, build_policy, build_reward, build_sampler, build_trainer
from engine.rl.recorder import Recorder, read_state, recorded_gates
from engine.rl.split import Split, carve, freeze
from engine.rl.trainer import Trainer
from engine.rl.warmup import WarmupReport, recipe_hash, warm_up, warm_up_cached


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt of an `rl_run`; the final result.

    Raises RLLoopError for what cannot run, WarmupError, and Aborted with the result so far.
    """
    assert isinstance(attempt.config, RLRunConfig)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    return _Run(attempt, attempt.config).execute()


@dataclass(frozen=True)
class _Resumed:
    """Where this attempt starts: `state` None means at the beginning."""

    state: LoopState | None
    folder: Path | None
    warmup: dict[str, Any] | None


class _Run:
    """The parts of one attempt, wired."""

    def __init__(self, attempt: Attempt, config: RLRunConfig) -> None:
        self.attempt = attempt
        self.config = config
        self.run_dir = attempt.run
        self.events = attempt.events
        self.bench: Bench = load(config.data)
        self.split: Split = carve(
            self.bench.questions,
            heldout_frac=config.heldout_frac,
            select_frac=config.select_frac,
            seed=config.seed,
        )
        freeze(self.split, self.run_dir.split)
        self.resumed = self._find_checkpoint()
        self._announce()
        self.peaks = memory.PeakMeter()
        self.policy: Policy = build_policy(config)
        self.reward = build_reward(config)
        self.gate = build_gate(config, self.policy, self.reward)
        self.peaks.end("lane-bringup")

    def execute(self) -> dict[str, Any]:
        """Step-0 policy → loop → report."""
        warmup = self._step_zero()
        trainer = build_trainer(self.config, self.policy)
        self._restore(trainer)
        recorder = self._recorder(trainer)
        recorder.facts = {"warmup": warmup}
        loop = RLLoop(
            self.config,
            self.reward,
            self.bench,
            sampler=build_sampler(self.config, self.policy, "train"),
            trainer=trainer,
            heldout_eval=self.gate,
            progress_cb=self._progress,
            observer=recorder,
            split=self.split,
            state=self.resumed.state,
        )
        try:
            loop.run()
            report = self._report(loop, recorder)
        except Aborted as stop:
            stop.result = self._result(loop, warmup) | {"aborted": True}
            write_json(self.run_dir.lineage, loop.lineage().as_dict())
            raise
        self.events.write("progress", phase="teardown", step=loop.state.step)
        return self._result(loop, warmup) | report

    # --- where it starts ---

    def _find_checkpoint(self) -> _Resumed:
        found = checkpoint.load_newest(self.run_dir, self._warn)
        if found is None:
            return _Resumed(None, None, None)
        state = read_state(found.path)
        for gate, score in recorded_gates(self.run_dir.events, found.step).items():
            if gate.split == "select":
                state.heldout_scores.setdefault(gate.step, score)
        state.aborted_after = sorted({*state.aborted_after, *self._earlier_stops(found.step)})
        return _Resumed(state, found.path, found.state["warmup"])

    def _earlier_stops(self, last_step: int) -> Sequence[int]:
        """Steps after which earlier attempts were stopped, from the run card."""
        try:
            trials = json.loads(self.run_dir.lineage.read_bytes())["trials"]
        except FileNotFoundError:
            return []
        return [t["step"] for t in trials if t["kind"] == "aborted" and t["step"] <= last_step]

    def _announce(self) -> None:
        state = self.resumed.state
        self.events.write("started", resumed_from=None if state is None else state.step)
        self.events.write(
            "progress",
            phase="lane-bringup",
            step=0 if state is None else state.step,
            max_steps=self.config.max_steps,
            base=self.config.base,
            domain=self.bench.name,
        )

    def _step_zero(self) -> dict[str, Any] | None:
        """Bring the policy to step 0; what the warm-up did, None without one."""
        if self.resumed.state is not None:
            first = checkpoint.verified(self.run_dir.checkpoint(0), self._warn)
            if first is None:
                raise NightlaneError(
                    f"{self.run_dir.checkpoint(0)} is damaged, and with it the reference of the KL "
                    "penalty; remove the run's checkpoints to start it over"
                )
            self.policy.load(first.path, version=0)
            return self.resumed.warmup
        if self.config.warmup is None:
            return None
        return asdict(self._warm_up(self.config.warmup))

    def _warm_up(self, config: WarmupConfig) -> WarmupReport:
        started = time.monotonic()
        self.events.write("progress", phase="warmup", step=0)
        self.peaks.begin()
        name = recipe_hash(self.config, self.split.hash)
        report = warm_up_cached(
            Path(self.attempt.job.cache_dir) / f"warmup-{name}",
            self.policy,
            lambda: warm_up(
                self.policy,
                self.split.train,
                config,
                seed=self.config.seed,
                evaluate=lambda: float(self.gate(0, self.split.select)),
                on_step=lambda step, loss: self._warmup_metric(step, "warmup/loss", loss),
                on_score=lambda step, score: self._warmup_metric(step, "warmup/heldout", score),
            ),
            self._warn,
        )
        self.peaks.end("warmup")
        seconds = round(time.monotonic() - started, 3)
        self.events.write("span", name="warmup", seconds=seconds, step=0)
        source = "taken from the cache" if report.cached else f"done in {seconds:.0f} s"
        text = f"warm-up {source}: {report.steps} steps, held-out {report.score:.3f}"
        self.events.write("note", level="info", code="WARMUP", text=text)
        return report

    def _warmup_metric(self, step: int, series: str, value: float) -> None:
        self.events.write("metric", step=step, values={series: value})

    def _restore(self, trainer: Trainer) -> None:
        if self.resumed.state is not None and self.resumed.folder is not None:
            self.policy.load(self.resumed.folder, version=self.resumed.state.step)
            trainer.load(self.resumed.folder)

    def _recorder(self, trainer: Trainer) -> Recorder:
        def save(folder: Path) -> None:
            self.policy.save(folder)
            trainer.save(folder)

        last_step = None if self.resumed.state is None else self.resumed.state.step
        gates = recorded_gates(self.run_dir.events, last_step)
        return Recorder(
            self.run_dir, self.events, self.config, save=save, gates=gates, peaks=self.peaks
        )

    # --- what it says ---

    def _progress(self, fields: Any) -> None:
        mem = {
            "rss_gb": round(memory.rss_gb(), 3),
            "peak_gb": round(self.peaks.peak_gb, 3),
            "available_gb": round(memory.available_gb(), 3),
        }
        self.events.write("progress", **fields, mem=mem)

    def _warn(self, code: str, text: str) -> None:
        self.events.write("note", level="warning", code=code, text=text)

    def _report(self, loop: RLLoop, recorder: Recorder) -> dict[str, Any]:
        """The `report` rows, once: step 0 against the selected step, item by item."""
        if self.run_dir.report.exists():
            kept: dict[str, Any] = json.loads(self.run_dir.report.read_bytes())
            return kept
        comparison = compare([], [])
        if self.split.report:
            comparison = self._compare_reported(loop, recorder)
        report = _report_fields(comparison, self.config.report_min)
        write_json(self.run_dir.report, report)
        return report

    def _compare_reported(self, loop: RLLoop, recorder: Recorder) -> PairedComparison:
        recorder.phase("heldout-gate", loop.state.step)
        selected = loop.selected_step or 0
        before = self._report_gate(0)
        after = before if selected == 0 else self._report_gate(selected)
        for result in {0: before, selected: after}.values():
            recorder.record_gate("report", result, selected=result.step == selected)
        return compare(before.outcomes, after.outcomes)

    def _report_gate(self, step: int) -> GateResult:
        self.policy.load(self.run_dir.checkpoint(step), version=step)
        return self.gate(step, self.split.report)

    def _result(self, loop: RLLoop, warmup: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "kind": self.attempt.job.kind,
            **loop.summary(),
            "upstream": {
                "corpus": {"source": self.config.data.source, "split": self.split.hash},
                "sft_init": warmup,
                "bench": self.bench.name,
            },
            "steps": loop.state.step,
            "seconds": round(loop.state.seconds, 1),
            "peak_gb": round(self.peaks.peak_gb, 3),
            "mem_trace": self.peaks.trace(),
        }


def _report_fields(comparison: PairedComparison, report_min: int) -> dict[str, Any]:
    """Scores are null where there was no row to score."""
    scored = comparison.n > 0
    return {
        "heldout_before": comparison.before if scored else None,
        "heldout_after": comparison.after if scored else None,
        "lift": comparison.lift if scored else None,
        "lift_ci95": list(comparison.ci95) if scored else None,
        "p_value": comparison.p_value,
        "gained": comparison.gained,
        "lost": comparison.lost,
        "report_n": comparison.n,
        "verdict": comparison.verdict(report_min),
    }
