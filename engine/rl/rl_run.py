"""The composition root of `rl_run`: builds the real parts, runs the loop, tells the result.

Order matters: the split stands before anything trains, the step-0 policy (after the warm-up) is
checkpoint, KL reference and baseline at once, and the `report` rows are looked at after the last
gate only.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.contract.errors import NightlaneError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.provenance import BEGINS, earlier_runs
from engine.contract.rl.cautions import cautions
from engine.contract.run_dir import write_json
from engine.contract.trace import TraceWriter
from engine.data.overlong import fitted
from engine.data.rows import Bench, load
from engine.data.split import Split, carve, freeze, thawed
from engine.evaluate.gate import GateResult
from engine.models.policy import Policy
from engine.rl import warmup
from engine.rl.guards.guard import Collapsed, Diagnosis
from engine.rl.guards.rollback import roll_back
from engine.rl.journal import Journal
from engine.rl.loop import RLLoop, TrainerSeam
from engine.rl.parts import (
    build_gate,
    build_policy,
    build_prompts,
    build_reward,
    build_sampler,
    build_trainer,
)
from engine.rl.recorder import Recorder, read_state, recorded_gates
from engine.rl.report import report_fields
from engine.rl.serving import build_lane
from engine.rl.state import LoopState
from engine.rl.trainer import NonFiniteUpdateError, Trainer
from engine.rl.warmup import WarmupReport
from engine.run import checkpoint, memory
from engine.run.session import Attempt
from engine.run.stop import Aborted, Declined
from engine.sampling.base import Groups
from engine.sampling.vllm.launch import ServingLane
from engine.verdict.selection import Outcomes

_SEEN = "HELDOUT_SEEN"


def run(attempt: Attempt) -> dict[str, Any]:
    """Run one attempt of an `rl_run`; the final result.

    Raises RLLoopError for what cannot run, WarmupError, and Aborted or Declined with the result
    so far.
    """
    assert isinstance(attempt.config, RLRunConfig)
    torch.set_num_threads(attempt.config.threads or os.cpu_count() or 1)
    trace = TraceWriter(attempt.run.trace, attempt.job.attempt)
    try:
        return _Run(attempt, attempt.config, trace).execute()
    finally:
        trace.close()


@dataclass(frozen=True)
class _Resumed:
    """Where this attempt starts: `state` None means at the beginning."""

    state: LoopState | None
    folder: Path | None
    warmup: dict[str, Any] | None
    serving: dict[str, Any] | None = None
    """Who sampled for the attempts before."""
    step_zero_lost: bool = False
    """Checkpoint 0, the reference of the KL penalty, is damaged and made anew."""


class _Run:
    """The parts of one attempt, wired."""

    def __init__(self, attempt: Attempt, config: RLRunConfig, trace: TraceWriter) -> None:
        self.attempt = attempt
        self.trace = trace
        self.config = config
        self.run_dir = attempt.run
        self.events = attempt.events
        self.bench: Bench = load(config.data)
        self.split: Split = thawed(self.bench.questions, self.run_dir.split) or carve(
            self.bench.questions,
            heldout_frac=config.heldout_frac,
            select_frac=config.select_frac,
            seed=config.split_seed,
        )
        self.resumed = self._find_checkpoint()
        self._settle_inputs()
        self._announce()
        self.peaks = memory.PeakMeter()
        self.policy: Policy = build_policy(config)
        self.reward = build_reward(config)
        self.encode = build_prompts(config, self.policy)
        shown = build_prompts(config, self.policy, self.split.train)
        self.split = fitted(
            self.split,
            config,
            self.policy.window,
            lengths=self.encode.lengths,
            training_lengths=shown.lengths,
            warn=self._warn,
        )
        freeze(self.split, self.run_dir.split)
        self.lane: ServingLane | None = None
        if config.serves:
            self.lane = build_lane(
                attempt,
                config,
                self.policy,
                heldout=(self.encode, [*self.split.select, *self.split.report]),
                training=(shown, self.split.train),
            )
        self.gate = build_gate(config, self.policy, self.reward, self.lane)
        self.peaks.end("lane-bringup")

    def execute(self) -> dict[str, Any]:
        """Everything from the first weight to the report, with the serving lane up if there is one.

        The lane is down when this returns or raises.
        """
        with self.lane or nullcontext():
            self.peaks.end("lane-bringup")
            self._compare_servers()
            return self._execute()

    def _execute(self) -> dict[str, Any]:
        """Step-0 policy → loop → report."""
        warmup = self._step_zero()
        trainer = build_trainer(self.config, self.policy)
        recorder = self._recorder(trainer)
        recorder.facts = {"warmup": warmup, "serving": self._served()}
        recorder.card = {"serving": self._served()}
        self._restore(trainer, recorder)
        loop = self._loop(trainer, recorder, self.resumed.state)
        if self.resumed.state is None:
            self._tell_what_was_seen(loop, recorder)
        try:
            loop, refusal = self._train(loop, trainer, recorder)
            report = {}
            if refusal is None or (isinstance(refusal, Collapsed) and refusal.final):
                report = self._report(loop, recorder)
            result = self._result(loop, warmup) | report
        except Aborted as stop:
            stop.result = self._result(loop, warmup) | {"aborted": True}
            write_json(self.run_dir.lineage, loop.lineage().as_dict() | recorder.card)
            raise
        self.events.write("progress", phase="teardown", step=loop.state.step)
        if refusal is not None:
            refusal.result = result
            raise refusal
        return result

    def _loop(self, trainer: Trainer, recorder: Recorder, state: LoopState | None) -> RLLoop:
        return RLLoop(
            self.config,
            self.reward,
            self.bench,
            sampler=build_sampler(self.config, self.policy, "train", self.split.train, self.lane),
            trainer=_finite(trainer),
            heldout_eval=self.gate,
            progress_cb=self._progress,
            observer=recorder,
            split=self.split,
            state=state,
            journal=None if self.resumed.state is None else Journal(self.run_dir.rollouts),
        )

    def _train(
        self, loop: RLLoop, trainer: Trainer, recorder: Recorder
    ) -> tuple[RLLoop, Declined | None]:
        """Run the loop to its end or to where it gives up; roll collapses back if allowed."""
        while True:
            try:
                loop.run()
            except Collapsed as found:
                if len(loop.state.rollbacks) >= self.config.guard.rollbacks:
                    return loop, found
                state = roll_back(loop.state, found.diagnosis, self.run_dir, recorder)
                if state is None:
                    return loop, found
                folder = self.run_dir.checkpoint(state.step)
                self.policy.load(folder, version=state.step)
                trainer.load(folder)
                trainer.lr_scale = 0.5 ** len(state.rollbacks)
                recorder.rewind(state)
                self._progress({"step": state.step, "alerts": state.alerts})
                loop = self._loop(trainer, recorder, state)
            except Declined as refusal:
                return loop, refusal
            else:
                return loop, None

    # --- where it starts ---

    def _find_checkpoint(self) -> _Resumed:
        found = checkpoint.load_newest(self.run_dir, self._warn)
        if found is None:
            return _Resumed(None, None, None)
        state = read_state(found.path)
        state.aborted_after = sorted({*state.aborted_after, *self._earlier_stops(found.step)})
        return _Resumed(state, found.path, found.state["warmup"], found.state.get("serving"))

    def _settle_inputs(self) -> None:
        """A run is one model's. Its rows are proven by the frozen split, whatever stands beside
        them in the file.
        """
        rows = {str(Path(self.config.data.source))}
        if self.resumed.state is not None:
            self.attempt.require_inputs(but=rows)
            return
        self.attempt.freeze_inputs(but=rows)
        self.run_dir.report.unlink(missing_ok=True)  # of weights that are gone

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
            alerts=[] if state is None else state.alerts,
        )
        for caution in cautions(self.config):
            self._warn("CAUTION", caution.line())

    def _tell_what_was_seen(self, loop: RLLoop, recorder: Recorder) -> None:
        """Held-out rows that an earlier run trained on, where the policy comes out of one."""
        heldout = [question.id for question in (*self.split.select, *self.split.report)]
        for earlier in earlier_runs(self.config.model_dump(include=set(BEGINS))):
            if earlier.data.get("source") != self.config.data.source:
                continue
            seen = len(earlier.trained.intersection(heldout))
            if not seen:
                continue
            text = (
                f"{seen} of {len(heldout)} held-out rows were trained on by the run that "
                f"{earlier.field} comes from ({earlier.run.root}): what they show of this one is "
                f"too good; hold out the same with data.split_seed: {earlier.split_seed}"
            )
            loop.state.alerts.append({"code": _SEEN, "step": 0, "text": text})
            recorder.alerted(_SEEN, 0, text)
            self._progress({"alerts": loop.state.alerts})

    def _step_zero(self) -> dict[str, Any] | None:
        """Bring the policy to step 0; what the warm-up did, None without one."""
        if self.resumed.state is not None:
            first = checkpoint.verified(self.run_dir.checkpoint(0), self._warn)
            if first is not None:
                self.policy.load(first.path, version=0)
                return self.resumed.warmup
            self.resumed = replace(self.resumed, step_zero_lost=True)
        if not warmup.needed(self.config):
            return None
        return asdict(self._warm_up())

    def _warm_up(self) -> WarmupReport:
        started = time.monotonic()
        self.events.write("progress", phase="warmup", step=0)
        self.peaks.begin()
        name = warmup.recipe_hash(self.config, self.split, self.attempt.content)
        report = warmup.cached(
            Path(self.attempt.job.cache_dir) / f"warmup-{name}",
            self.policy,
            lambda: warmup.prepare(
                self.policy,
                self.split,
                self.config,
                gate=self.gate,
                encode=self.encode,
                listen=self._warmup_metric,
            ),
            self._warn,
        )
        self.peaks.end("warmup")
        seconds = round(time.monotonic() - started, 3)
        self.events.write("span", name="warmup", seconds=seconds, step=0)
        source = "taken from the cache" if report.cached else f"done in {seconds:.0f} s"
        text = f"warm-up {source}: {report}"
        self.events.write("note", level="info", code="WARMUP", text=text)
        return report

    def _warmup_metric(self, step: int, series: str, value: float) -> None:
        self.events.write("metric", step=step, values={series: value})

    def _restore(self, trainer: Trainer, recorder: Recorder) -> None:
        """Weights, moments and a checkpoint 0: as they were when the attempt before ended."""
        if self.resumed.state is None or self.resumed.folder is None:
            # Whatever was sampled here before belongs to weights that are gone.
            Journal(self.run_dir.rollouts).forget_after(0)
            return
        if self.resumed.step_zero_lost:
            self._rebuild_step_zero(recorder)
        self.policy.load(self.resumed.folder, version=self.resumed.state.step)
        trainer.load(self.resumed.folder)

    def _rebuild_step_zero(self, recorder: Recorder) -> None:
        """Base and warm-up are deterministic: the same step 0 again, and said if it is not."""
        before = checkpoint.recorded_hashes(self.run_dir.checkpoint(0))
        recorder.publish(LoopState())
        after = checkpoint.recorded_hashes(self.run_dir.checkpoint(0))
        weights = {name for name in after if name.endswith(".safetensors")}
        same = all(before.get(name) == after[name] for name in weights)
        told = "with the same weights" if same else "but not proven to have the same weights"
        text = f"checkpoint 0 was damaged and is made anew from the base, {told}"
        self._warn("STEP_ZERO_REBUILT", text)

    def _recorder(self, trainer: Trainer) -> Recorder:
        def save(folder: Path) -> None:
            self.policy.save(folder)
            trainer.save(folder)

        last_step = None if self.resumed.state is None else self.resumed.state.step
        gates = recorded_gates(self.run_dir.events, last_step)
        return Recorder(
            self.run_dir,
            self.events,
            self.trace,
            self.config,
            save=save,
            gates=gates,
            peaks=self.peaks,
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
        """The `report` rows, once: step 0 against the picked step, row by row. Then publish."""
        if self.run_dir.report.exists():
            report: dict[str, Any] = json.loads(self.run_dir.report.read_bytes())
        else:
            picked = checkpoint.whole_pick(
                loop.selected_step or 0,
                loop.heldout_scores,
                self.run_dir.checkpoint,
                self._warn,
            )
            reported = self._score_reported(loop, recorder, picked) if self.split.report else {}
            report = report_fields(loop.state, reported, self.config, picked)
            if picked != (loop.selected_step or 0):
                report |= {
                    "selected_step": picked,
                    "selected_heldout_score": loop.heldout_scores[picked],
                }
            write_json(self.run_dir.report, report | {"diagnosis": loop.state.diagnosis})
        checkpoint.select(self.run_dir, report["published_step"])
        best = loop.selected_step or 0
        picked = report.get("selected_step", best)
        if picked != best:
            alert = checkpoint.stand_in(best, picked)
            loop.state.alerts.append(alert)
            recorder.alerted(**alert)
        return report

    def _score_reported(self, loop: RLLoop, recorder: Recorder, picked: int) -> dict[int, Outcomes]:
        recorder.phase("heldout-gate", loop.state.step)
        results = {step: self._report_gate(step) for step in sorted({0, picked})}
        for step, result in results.items():
            recorder.record_gate("report", result, selected=step == picked)
        return {step: result.outcomes for step, result in results.items()}

    def _report_gate(self, step: int) -> GateResult:
        """Raises NightlaneError for a checkpoint that is damaged: it is never scored."""
        whole = checkpoint.verified(self.run_dir.checkpoint(step), self._warn)
        if whole is None:
            raise NightlaneError(
                f"{self.run_dir.checkpoint(step)} is damaged and was not scored; "
                f"cockpit retry {self.attempt.job.job_id} goes on from the last whole checkpoint"
            )
        self.policy.load(whole.path, version=step)
        return self.gate(step, self.split.report)

    def _result(self, loop: RLLoop, warmup: dict[str, Any] | None) -> dict[str, Any]:
        summary, served = loop.summary(), self._served()
        return {
            "kind": self.attempt.job.kind,
            **summary,
            "lineage_card": summary["lineage_card"] | {"serving": served},
            "upstream": {
                "corpus": {"source": self.config.data.source, "split": self.split.hash},
                "sft_init": warmup,
                "bench": self.bench.name,
            },
            "serving": served,
            "steps": loop.state.step,
            "seconds": round(loop.state.seconds, 1),
            "peak_gb": round(self.peaks.peak_gb, 3),
            "mem_trace": self.peaks.trace(),
        }

    def _served(self) -> dict[str, Any] | None:
        """Who samples, with the pinned version; None = the trainer's own model, nothing pinned."""
        if self.lane is not None:
            return dict(self.lane.facts)
        pin = self.config.vllm_pin
        return None if pin is None else {"pin": pin, "version": None}

    def _compare_servers(self) -> None:
        """A resumed run may meet another version than the one that sampled its first half."""
        before, now = self.resumed.serving, self._served()
        if before and now and before.get("version") != now["version"]:
            self._warn(
                "SERVING_CHANGED",
                f"vLLM {now['version']} samples from here on, {before.get('version')} did before; "
                "set vllm_pin to refuse that",
            )


def _finite(trainer: Trainer) -> TrainerSeam:
    """The trainer, whose NaN the loop hears as a collapse."""

    def train(
        groups: Groups, advantages: Sequence[Sequence[float]], step: int
    ) -> Mapping[str, float]:
        try:
            return trainer(groups, advantages, step)
        except NonFiniteUpdateError as error:
            value = None if math.isnan(error.value) else error.value
            remedy = "lower lr, raise optim.adam_eps, or set optim.nonfinite to skip"
            text = f"{error.what} is {error.value}; the weights are those of the step before"
            diagnosis = Diagnosis("not a number", step, value, None, text, remedy)
            raise Collapsed(diagnosis) from error

    return train
