"""Writes a run down while it happens: events, rollouts, checkpoints, run card.

Listens to the loop; decides nothing in it. The files are those of `engine.contract`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

from engine import checkpoint, memory
from engine.contract.events import EventLog, EventReader
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir, write_json
from engine.data import Question
from engine.lineage import snapshot
from engine.reward import Verdict
from engine.rl.gate import GateResult
from engine.rl.loop import LoopObserver, LoopState, StepReport
from engine.rollout import Groups, Rollout

LOOP_STATE = "loop.json"
_SAMPLES = 4
"""Completions of a step that people get to see at once."""
_SHOWN = 600
"""Characters of a text in a sample event."""


@dataclass(frozen=True)
class GateKey:
    """One point of a held-out curve."""

    split: str
    step: int


def recorded_gates(path: Path, last_step: int | None) -> dict[GateKey, float]:
    """Gates of earlier attempts that still count for a run resumed after `last_step`."""
    found: dict[GateKey, float] = {}
    for event, _ in EventReader(path).read():
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = {k: v for k, v in found.items() if kept is not None and k.step <= kept}
        elif event["type"] == "gate":
            found[GateKey(event["split"], event["step"])] = event["score"]
    return {k: v for k, v in found.items() if last_step is not None and k.step <= last_step}


class Recorder(LoopObserver):
    """`save` writes policy and optimizer into a checkpoint folder."""

    def __init__(
        self,
        run: RunDir,
        events: EventLog,
        config: RLRunConfig,
        *,
        save: Callable[[Path], None],
        gates: Mapping[GateKey, float],
        peaks: memory.PeakMeter,
    ) -> None:
        self._run = run
        self._events = events
        self._config = config
        self._save = save
        self._gates = dict(gates)
        self._peaks = peaks
        self._phase = ""
        self._phase_began = time.monotonic()
        self._seconds: dict[str, float] = {}
        """Of the phases of the current step."""
        self._tokens = 0
        self.facts: dict[str, Any] = {}
        """Goes into every checkpoint's complete.json."""

    # --- what the loop says ---

    def phase(self, name: str, step: int) -> None:
        """Progress at once; the phase before it becomes a span."""
        self._close_phase(step)
        self._phase, self._phase_began = name, time.monotonic()
        self._peaks.begin()
        self._events.write("progress", phase=name, step=step, max_steps=self._config.max_steps)

    def sampled(
        self,
        step: int,
        tasks: Sequence[Question],
        groups: Groups,
        verdicts: Sequence[Sequence[Verdict]],
        advantages: Sequence[Sequence[float]],
    ) -> None:
        """Every completion to its file, a few to the event log."""
        self._close_phase(step)
        judged = [
            (task, rollout, verdict, advantage)
            for task, *rows in zip(tasks, groups, verdicts, advantages, strict=True)
            for rollout, verdict, advantage in zip(*rows, strict=True)
        ]
        self._tokens = sum(len(rollout.completion_ids) for _, rollout, _, _ in judged)
        _write_lines(
            self._run.rollouts / f"train-{step:06d}.jsonl",
            [_record(r, v) | {"advantage": a} for _, r, v, a in judged],
        )
        stride = max(1, len(judged) // _SAMPLES)
        items = [_sample(t, r, v, a) for t, r, v, a in judged[::stride][:_SAMPLES]]
        self._events.write("sample", step=step, split="train", items=items)

    def stepped(self, report: StepReport, state: LoopState) -> None:
        """The step's series; a step without signal says so."""
        self._close_phase(report.step)
        sampling, training = (self._seconds.pop(n, 0.0) for n in ("sampling", "training"))
        values = {
            "pool/score": report.pool_score,
            **report.metrics,
            "train/n_used": report.n_used,
            "train/adv_spread": report.adv_spread,
            "rollout/tokens_per_s": self._tokens / max(sampling, 1e-9),
            "time/sampling_s": sampling,
            "time/training_s": training,
            "time/step_s": state.history[-1]["seconds"],
            "mem/rss_gb": memory.rss_gb(),
            "mem/available_gb": memory.available_gb(),
        }
        self._events.write("metric", step=report.step, values=values)
        if not report.trained:
            text = f"step {report.step}: every group tied, nothing to rank; the weights stay"
            self._events.write("note", level="warning", code="NO_SIGNAL_STEP", text=text)

    def gated(self, step: int, result: SupportsFloat, state: LoopState) -> None:
        """The gate's event, its items, and the `selected` link where the checkpoint stands."""
        self._close_phase(step)
        assert isinstance(result, GateResult)
        self.record_gate("select", result, selected=state.selected_step == step)
        self._link(state)

    def checkpoint(self, state: LoopState, *, gate: bool, stopping: bool) -> bool:
        """Publish when the rhythm, a gate or a stop asks for it; then clear old ones away."""
        write_json(self._run.lineage, _card(state))
        if not (gate or stopping or state.step % self._config.save_every == 0):
            return False
        started = time.monotonic()
        published = checkpoint.publish(
            self._run, state.step, lambda folder: self._fill(folder, state), self._summary(state)
        )
        self._events.write(
            "checkpoint",
            step=state.step,
            path=str(published.path.relative_to(self._run.root)),
            seconds=time.monotonic() - started,
        )
        self._events.sync()
        self._link(state)
        always = {0, state.selected_step or 0}
        checkpoint.retain(self._run, keep=self._config.keep_checkpoints, always=always)
        return True

    # --- what the composition root says ---

    def record_gate(self, split: str, result: GateResult, *, selected: bool) -> None:
        """One event a point, whatever was killed when: a resumed run does not repeat it."""
        _write_lines(
            self._run.rollouts / f"heldout-{split}-{result.step:06d}.jsonl",
            [_record(i.rollout, i.verdict) | {"success": i.success} for i in result.items],
        )
        gate = GateKey(split, result.step)
        if gate in self._gates:
            return
        self._gates[gate] = float(result)
        self._events.write(
            "gate",
            step=result.step,
            split=split,
            score=float(result),
            n=len(result.items),
            ci95=list(result.ci95),
            temp=result.temp,
            selected=selected,
        )

    def _close_phase(self, step: int) -> None:
        if not self._phase:
            return
        seconds = time.monotonic() - self._phase_began
        self._seconds[self._phase] = seconds
        self._peaks.end(self._phase)
        self._events.write("span", name=self._phase, seconds=round(seconds, 4), step=step)
        self._phase = ""

    def _fill(self, folder: Path, state: LoopState) -> None:
        self._save(folder)
        (folder / LOOP_STATE).write_text(json.dumps(state.as_dict()), "utf-8")

    def _summary(self, state: LoopState) -> dict[str, Any]:
        return {
            "selected_step": state.selected_step,
            "heldout": state.heldout_scores.get(state.step),
            "pool": state.pool_scores.get(state.step),
            **self.facts,
        }

    def _link(self, state: LoopState) -> None:
        step = state.selected_step
        if step is not None and self._run.checkpoint(step).is_dir():
            checkpoint.select(self._run, step)


def read_state(folder: Path) -> LoopState:
    """The loop state in a checkpoint."""
    return LoopState.from_dict(json.loads((folder / LOOP_STATE).read_bytes()))


def _card(state: LoopState) -> dict[str, Any]:
    return snapshot(state.heldout_scores, state.pool_scores, state.aborted_after).as_dict()


def _record(rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": rollout.question_id,
        "sample": rollout.sample,
        "version": rollout.version,
        "text": rollout.text,
        "answer": verdict.answer,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "truncated": rollout.truncated,
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": rollout.completion_ids,
        "logprobs": [round(value, 6) for value in rollout.logprobs],
    }


def _sample(task: Question, rollout: Rollout, verdict: Verdict, advantage: float) -> dict[str, Any]:
    return {
        "prompt": task.prompt[:_SHOWN],
        "completion": rollout.text[:_SHOWN],
        "reward": verdict.reward,
        "reason": verdict.reason,
        "advantage": round(advantage, 4),
    }


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The whole file at once: a step done again after a resume replaces its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    temporary.replace(path)
