"""The one `TrainerCallback` between Transformers' Trainer and the run directory.

Out go events, rollouts, the checkpoint marker and the link to the best; in comes the abort
sentinel. Only the first rank writes; all of them agree on stopping. Knows no gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from engine.contract.sources.records import Record
from engine.contract.stage2.config import asked_alike
from engine.contract.trace import TraceWriter
from engine.evaluate.detection_scores import detection_scores, records_hash
from engine.run.recorder import Gated, Recorder
from engine.run.stop import Aborted, Collapsed, rl_hooks
from engine.stage2.evaluation import Evaluation
from engine.stage2.record import RolloutFiles
from engine.stage2.trainer import Stage2Trainer, StepCallback, StepLog
from engine.verdict.verdicts import best_step

_LIVE = {
    "loss": "train/loss",
    "ce": "loss/ce",
    "smoothl1": "loss/bbox_smoothl1",
    "ciou": "loss/bbox_ciou",
    "precision": "rollout/precision",
    "recall": "rollout/recall",
    "f1": "rollout/f1",
    "pack_fill": "packing/post_rollout_fill",
}
"""Name in the live result → series."""


class RunCallback(StepCallback):
    """Added to the trainer that it is given."""

    def __init__(
        self,
        recorder: Recorder,
        trainer: Stage2Trainer,
        trace: TraceWriter | None,
        prove: Callable[[], None] = lambda: None,
    ) -> None:
        self.recorder = recorder
        self.trace = trace
        self.prove = prove
        """Called once step 0 stands; raises what must end the run before step 1."""
        self.attempt = recorder.attempt
        self.trainer = trainer
        self.scores = recorder.gates("select")
        """Score on the validation records by step."""
        self.f1_of_rollouts = recorder.series("rollout/f1")
        """F1 of the training rollouts by Channel-B step."""
        self.seconds = sum(recorder.series("time/step_s").values())
        self.stopped_after = list(self.attempt.stopped_before(recorder.resumed))
        self.aborted = False
        self._ranks = trainer.parts.ranks
        self._files = RolloutFiles(self.attempt.run)
        self._first_step = 0
        self._began = time.monotonic()
        self._live: dict[str, Any] = {}

    @property
    def best_step(self) -> int | None:
        """The earliest of the best; None before the first evaluation."""
        return best_step(self.scores)

    # --- what the trainer says ---

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """A new run writes its step 0 down: it can be resumed, selected and compared with.

        Raises ConfigError for a delay of the scores that is longer than the run.
        """
        if self.trainer.eval_dataset is not None and args.eval_delay > state.max_steps:
            problem = (
                f"is more than the run's {state.max_steps} steps: none of them would be scored"
            )
            remedy = "lower it, or leave it out"
            raise ConfigError(
                [ConfigProblem("training.eval_delay", args.eval_delay, problem, remedy)]
            )
        self._first_step = state.global_step
        self.phase("training", state.global_step, state.max_steps)
        if self.recorder.resumed is None:
            self.trainer.end_of_step()
            self.trainer.save_now()
        self.prove()
        return control

    def on_learnt(self, log: StepLog) -> None:
        """A step's series, its rollouts, and how the run stands."""
        if log.rolled_out is not None:
            self.f1_of_rollouts[log.step] = log.values["rollout/f1"]
        if not self.recorder.writes:
            return
        self.attempt.metric(log.step, log.values)
        self._show(log)
        if log.rolled_out is not None:
            rollouts = self.trainer.parts.rollouts
            if self.trace is not None:
                self.trace.mark("rollouts", step=log.step, **self._drawn_by(log))
            items = self._files.write_step(log.step, log.rolled_out, log.records, rollouts)
            self.attempt.events.write("sample", step=log.step, split="train", items=items)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """A request to stop is heard here, by every rank at once."""
        self.trainer.end_of_step()
        if self._ranks.any(self.attempt.should_abort()):
            self.aborted = True
            control.should_save = True
            control.should_training_stop = True
            control.should_evaluate = False
        return control

    def on_log(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """The Trainer's own series."""
        kept = {
            f"train/{name}": value
            for name, value in (logs or {}).items()
            if name in {"grad_norm", "learning_rate"} and isinstance(value, int | float)
        }
        if kept and self.recorder.writes:
            self.attempt.metric(state.global_step, kept)

    def on_evaluate(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> Any:
        """One gate an evaluation; a new best is saved at once, so that it can be published."""
        found, step = self.trainer.last_evaluation, state.global_step
        assert found is not None
        assert metrics is not None
        self.scores.setdefault(step, found.score)
        is_best = self.best_step == step
        if self.recorder.writes:
            self.attempt.metric(step, metrics)
        records: Any = self.trainer.eval_dataset
        self.gate("select", step, found, records, selected=is_best)
        if is_best:
            control.should_save = step > 0
            self.recorder.link(step)
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Seal what the Trainer wrote, then let older checkpoints go."""
        self._ranks.wait()  # every rank has written its random state
        if self.recorder.writes:
            step = state.global_step
            # the Trainer saves model and tokenizer; without this the folder would be no whole model
            images = self.trainer.parts.vlm.image_processor
            images.save_pretrained(self.recorder.store.folder(step))
            self.recorder.checkpoint(step, self.state_of(step))
            self.card()
            coming = math.ceil((state.max_steps - step) / args.eval_steps)
            self.recorder.keep_selected(self.best_step, coming)
        return control

    # --- what the run says ---

    def stopped_at(self, step: int) -> None:
        """This attempt ends after a step, on request."""
        self.stopped_after = sorted({*self.stopped_after, step})

    def phase(self, name: str, step: int, max_steps: int) -> None:
        """Where the run is."""
        if self.recorder.writes:
            self.attempt.progress(phase=name, step=step, max_steps=max_steps)

    def gate(
        self, split: str, step: int, found: Evaluation, records: Sequence[Record], *, selected: bool
    ) -> None:
        """One point of a held-out curve, with its answers to `records` in a file."""
        gated = Gated(found.score, len(found.judged), found.ci95, temp=0.0)
        rows = lambda: self._files.gate_rows(found, records)  # noqa: E731 - made by who writes
        is_new = step not in self.recorder.gates(split)
        self.recorder.gate(split, step, gated, rows, selected=selected)
        if is_new and self.recorder.writes and found.detection is not None:
            facts = self._facts(split, step, records)
            for score in detection_scores(found.detection, facts):
                self.attempt.events.write("score", step=step, score=score.model_dump())

    def _facts(self, split: str, step: int, records: Sequence[Record]) -> dict[str, Any]:
        """What the scores of a gate share."""
        config: Any = self.attempt.config
        return {
            "checkpoint": f"step {step}" if step or config.warmup else "base",
            "base": config.model.path,
            "run": self.attempt.job.job_id,
            "step": step,
            "bench": config.detection.bench,
            "split": split,
            "picked": split == "select",
            "runner": "gate",
            "max_new_tokens": config.custom.extra.rollout_matching.max_new_tokens,
            "bench_hash": records_hash(records, asked_alike(config)),
        }

    def state_of(self, step: int) -> dict[str, Any]:
        """What a checkpoint's marker says of it."""
        return {"heldout": self.scores.get(step), "selected_step": self.best_step}

    def card(self) -> dict[str, Any]:
        """The run card, also written down."""
        return self.recorder.card(self.scores, self.f1_of_rollouts, self.stopped_after)

    def _drawn_by(self, log: StepLog) -> dict[str, Any]:
        """Seeds and decoding of a step's rollouts."""
        base = int(log.values["stage2/rollout_seed_base"])
        return {"seed_base": base, "decoding": self.trainer.parts.rollouts.sampler.decoding()}

    def _show(self, log: StepLog) -> None:
        """The live result: of Channel-B's figures the last known ones stay."""
        values = log.values
        self.seconds += values["time/step_s"]
        dropped = f"{self.trainer.parts.rollouts.targets.series}/strict_drop/N_drop_invalid"
        live = {**_LIVE, "dropped": dropped}
        known = {name: values[series] for name, series in live.items() if series in values}
        self._live |= {"channel": (log.channel or "").upper(), **known}
        left = self.trainer.state.max_steps - log.step
        done = max(log.step - self._first_step, 1)
        self.attempt.progress_with_memory(
            {
                "phase": "training",
                "step": log.step,
                "max_steps": self.trainer.state.max_steps,
                "pool_score": self.f1_of_rollouts.get(log.step, self._live.get("f1")),
                "eta_s": round((time.monotonic() - self._began) / done * left, 1),
                "stage2": dict(self._live),
                "part": None,
            }
        )


def train(trainer: Stage2Trainer, callback: RunCallback) -> Collapsed | None:
    """To the end, or to the step whose update was no number; the step before is a checkpoint.

    Raises Aborted once the checkpoint to resume from stands.
    """
    recorder = callback.recorder
    resumed = recorder.resumed
    if resumed is not None and trainer.is_over(resumed.path):
        callback.prove()
        if recorder.writes:
            recorder.keep_selected(callback.best_step, 0)  # a kill may have come before it
        return None
    # several ranks must stop at the same place: the callback asks between two steps
    quiet = rl_hooks() if trainer.parts.ranks.size > 1 else nullcontext()
    try:
        with quiet:
            trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed.path))
    except NightlaneError as stop:
        if not (stop.resumable or isinstance(stop, Collapsed)):
            raise
        if not recorder.store.folder(trainer.state.global_step).exists():
            trainer.save_now()
        if isinstance(stop, Collapsed):
            return stop
        raise
    if callback.aborted:
        raise Aborted
    return None
