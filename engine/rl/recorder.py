"""Writes a loop down while it runs: phases, rollouts, series, gates, checkpoints, run card.

Listens to the loop; decides nothing in it. What every kind writes is `engine.run.recorder`'s.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

from engine.contract.documents import read_json_object
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.trace import TraceWriter
from engine.data.rows import Question
from engine.evaluate.completions import asked_and_gold, judged_by
from engine.evaluate.gate import GateResult
from engine.rewards.adapter import Verdict
from engine.rl.buffer import JudgedGroup
from engine.rl.journal import Journal, record
from engine.rl.observer import LoopObserver
from engine.rl.state import LoopState, StepReport
from engine.run import memory
from engine.run.checkpoint import Checkpoint
from engine.run.proof import Check, prove
from engine.run.recorder import Gated, Recorder
from engine.run.session import Attempt
from engine.sampling.base import Rollout
from engine.sampling.measures import duplicates_warning

LOOP_STATE = "loop.json"
_SAMPLES = 4
"""Completions of a step that people get to see at once."""
_OF_A_STEP = frozenset({"sampling", "training"})
_SHOWN = 600
"""Characters of a text in a sample event."""


class LoopRecorder(LoopObserver):
    """`save` writes policy and optimizer into a checkpoint folder."""

    def __init__(
        self,
        recorder: Recorder,
        trace: TraceWriter,
        config: RLRunConfig,
        *,
        save: Callable[[Path], None],
    ) -> None:
        self._recorder = recorder
        self._attempt = recorder.attempt
        self._run = recorder.attempt.run
        self._events = recorder.attempt.events
        self._peaks = recorder.attempt.peaks
        self._trace = trace
        self._config = config
        self._labels = {bench.name: bench.label for bench in config.heldout if bench.shots}
        self._save = save
        self._phase = ""
        self._phase_began = self._phase_ended = time.monotonic()
        self._step_began: float | None = None
        """Start of the first phase of the running step."""
        self._seconds: dict[str, float] = {}
        """Of the phases of the current step."""
        self._tokens = 0
        """Sampled in the current step."""
        self._judging_since: float | None = None
        self._recalled = False
        """Whether the step's rollouts came from the journal."""

    # --- what the loop says ---

    def phase(self, name: str, step: int) -> None:
        """The phase before it becomes a span."""
        self._close_phase(step)
        self._phase, self._phase_began = name, time.monotonic()
        if name in _OF_A_STEP and self._step_began is None:
            self._step_began = self._phase_began
        self._peaks.begin()
        self._attempt.progress(phase=name, step=step, max_steps=self._config.max_steps)

    def judging(self) -> None:
        """Sampling ends here; what follows within its phase is the verifiers'."""
        self._judging_since = time.monotonic()

    def sampled(self, step: int, groups: Sequence[JudgedGroup], *, recalled: bool) -> None:
        """A few completions for people to see at once."""
        self._close_phase(step)
        self._recalled = recalled
        if recalled:  # said, so that nobody wonders at a step that sampled in no time
            text = f"step {step}: its rollouts were sampled before; taken from {self._run.rollouts}"
            self._attempt.note("RECALLED", text)
        judged = [(group.task, *row) for group in groups for row in group.rows()]
        self._tokens = sum(len(rollout.completion_ids) for _, rollout, _, _ in judged)
        stride = max(1, len(judged) // _SAMPLES)
        items = [_sample(*one) for one in judged[::stride][:_SAMPLES]]
        self._events.write("sample", step=step, split="train", items=items)

    def stepped(self, report: StepReport, state: LoopState) -> Mapping[str, float]:
        """The step's series; a step without signal says so."""
        self._close_phase(report.step)
        sampling, verifying, training = (
            self._seconds.pop(n, 0.0) for n in ("sampling", "verifying", "training")
        )
        if self._recalled:
            sampling = verifying = 0.0
        # What was drawn while an earlier step trained took longer than was waited for it.
        drawing = max(sampling, report.metrics.get("time/ahead_s", 0.0))
        values: dict[str, float] = {
            **report.metrics,
            "train/n_used": report.n_used,
            "train/adv_spread": report.adv_spread,
            "rollout/tokens": self._tokens,
            **({"rollout/tokens_per_s": self._tokens / drawing} if drawing else {}),
            "time/sampling_s": sampling,
            "time/verifying_s": verifying,
            "time/training_s": training,
            "time/step_s": state.history[-1]["seconds"],
            "mem/rss_gb": memory.rss_gb(),
            "mem/available_gb": memory.available_gb(),
        }
        values |= {f"fate/{fate}": count for fate, count in report.fates.items()}
        if report.pool_score is not None:
            values["pool/score"] = report.pool_score
            self._trace.counter("score", {"pool": report.pool_score})
        self._events.write("metric", step=report.step, values=values)
        if self._step_began is not None:
            self._trace.span("step", self._step_began, self._phase_ended, step=report.step)
        self._step_began = None
        self._trace.counter("fates", report.fates)
        self._trace.counter("memory", {"rss_gb": values["mem/rss_gb"]})
        self._recalled = False
        self._tokens = 0
        if not report.n_used:
            left = "the KL term alone moved the weights" if report.trained else "the weights stay"
            text = f"step {report.step}: every group tied, nothing to rank; {left}"
            self._attempt.warn("NO_SIGNAL_STEP", text)
        self._warn_of_update(report)
        alarm = self._config.sampling.duplicates_alarm
        repeats = duplicates_warning(report.step, report.metrics, alarm)
        if repeats is not None:
            self._attempt.warn("DUPLICATE_DRAWS", repeats)
        return values

    def _warn_of_update(self, report: StepReport) -> None:
        """Sampler and trainer apart, or an update that was not finite and left out."""
        ahead = report.metrics.get("rollout/sampler_gap", 0.0)
        gap = report.metrics.get("train/sampler_gap_mean", ahead)
        limit = self._config.objective.sampler_gap_warn
        if gap > limit:
            text = (
                f"step {report.step}: sampler and trainer differ by {gap:.3g} nats a token in the "
                f"mean, more than objective.sampler_gap_warn={limit:g}; are both at the same "
                "weights and precision? objective.sampler_correction: tis corrects for it"
            )
            self._attempt.warn("SAMPLER_GAP", text)
        skipped = report.metrics.get("train/skipped", 0.0)
        if skipped:
            text = (
                f"step {report.step}: {skipped:.0f} update(s) were not finite and left out; "
                "lower lr or raise optim.adam_eps when this comes back"
            )
            self._attempt.warn("UPDATE_SKIPPED", text)

    def alerted(self, code: str, step: int, text: str) -> None:
        """A warning among the events and a mark in the trace."""
        self._attempt.warn(code, f"step {step}: {text}")
        self._trace.mark(code, step=step, text=text)

    def gated(self, step: int, result: SupportsFloat, state: LoopState) -> None:
        """The gate's event, its items, and the `selected` link where the checkpoint stands."""
        self._close_phase(step)
        assert isinstance(result, GateResult)
        self.record_gate("select", result, selected=state.selected_step == step)
        self._record_sources(result)
        self._recorder.link(state.selected_step)

    def benched(self, name: str, result: SupportsFloat) -> None:
        """As a gate of its own name, with its rows."""
        assert isinstance(result, GateResult)
        self.record_gate(name, result, selected=False)
        self._record_sources(result)

    def checkpoint(self, state: LoopState, *, gate: bool, stopping: bool) -> bool:
        """Publish when the rhythm, a gate or a stop asks for it; then clear old ones away."""
        self.card(state)
        if not (gate or stopping or state.step % self._config.save_every == 0):
            return False
        self.publish(state)
        coming = math.ceil((self._config.max_steps - state.step) / self._config.heldout_every)
        self._recorder.keep_selected(state.selected_step, coming)
        return True

    def let_go(self, picked: int) -> None:
        """Once the report stands, checkpoints of gates stay no longer than others."""
        self._recorder.let_go(picked)

    # --- what the composition root says ---

    def prove(self, checks: Sequence[Check], *, anew: bool = False) -> None:
        """See `engine.run.proof.prove`."""
        prove(self._recorder, checks, anew=anew)

    def publish(self, state: LoopState) -> None:
        """Write the state's checkpoint, durable with all events before it."""
        began = time.monotonic()
        summary = {
            "selected_step": state.selected_step,
            "heldout": state.heldout_scores.get(state.step),
            "pool": state.pool_scores.get(state.step),
        }
        self._recorder.checkpoint(state.step, summary, lambda folder: self._fill(folder, state))
        self._trace.span("checkpoint", began, time.monotonic(), step=state.step)

    def card(self, state: LoopState) -> dict[str, Any]:
        """The run card so far, also written down."""
        return self._recorder.card(
            state.heldout_scores, state.pool_scores_by_step(), state.aborted_after
        )

    def rewind(self, state: LoopState) -> None:
        """The run goes on from an earlier step: what later ones measured is void."""
        self._close_phase(state.step)
        self._events.write("started", resumed_from=state.step)
        self.publish(state)
        self._recorder.forget_after(state.step)
        Journal(self._run.rollouts).forget_after(state.step)
        self._recorder.link(state.selected_step)

    def record_gate(
        self, split: str, result: GateResult, *, selected: bool, rows: bool = True
    ) -> None:
        """One point of a held-out curve, with every row it was scored on; without `rows` they are
        those of another curve too.
        """
        self._trace.counter("score", {f"heldout {split}": float(result)})
        label = self._labels.get(split, "")
        found = Gated(
            float(result), len(result.counted), result.ci95, result.temp, result.values(), label
        )

        def written() -> list[dict[str, Any]]:
            return [
                record(i.rollout, i.verdict)
                | asked_and_gold(i.question, i.rollout)
                | {"success": i.success}
                | judged_by(i.verdict, i.success, i.also)
                for i in result.items
            ]

        self._recorder.gate(split, result.step, found, written if rows else None, selected=selected)

    def _record_sources(self, result: GateResult) -> None:
        """A curve for each source of a mixture; their rows stand in the file of all."""
        for name, part in result.by_source().items():
            self.record_gate(name, part, selected=False, rows=False)

    def _close_phase(self, step: int) -> None:
        """The phase becomes a span; a step may sample several times."""
        if not self._phase:
            return
        now = time.monotonic()
        verifying = now - (self._judging_since or now)
        if verifying:
            self._add("verifying", verifying)
            self._trace.span("verifying", now - verifying, now, step=step)
        seconds = now - self._phase_began
        self._add(self._phase, seconds - verifying)
        self._peaks.end(self._phase)
        self._events.write("span", name=self._phase, seconds=round(seconds, 4), step=step)
        self._trace.span(self._phase, self._phase_began, now, step=step)
        self._phase_ended = now
        self._phase, self._judging_since = "", None

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _fill(self, folder: Path, state: LoopState) -> None:
        self._save(folder)
        (folder / LOOP_STATE).write_text(json.dumps(state.as_dict()), "utf-8")


def read_state(resumed: Checkpoint, attempt: Attempt) -> LoopState:
    """The loop state in a checkpoint, with the stops that came after it was written."""
    state = state_in(resumed.path)
    state.aborted_after = sorted({*state.aborted_after, *attempt.stopped_before(resumed)})
    return state


def state_in(folder: Path) -> LoopState:
    """The loop state in a checkpoint's folder."""
    return LoopState.from_dict(read_json_object(folder / LOOP_STATE))


def _sample(task: Question, rollout: Rollout, verdict: Verdict, advantage: float) -> dict[str, Any]:
    return {
        "prompt": task.prompt[:_SHOWN],
        "completion": rollout.text[:_SHOWN],
        "reward": verdict.reward,
        "reason": verdict.reason,
        "advantage": round(advantage, 4),
    }
