"""Bridge: one `TrainerCallback` between the Trainer and the run directory.

Out go events, rollouts, the checkpoint marker and the link to the best; in comes the abort
sentinel. Only the first rank writes; all of them agree on stopping. Knows no gradient.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.events import EventLog, usable
from engine.contract.run_dir import RunDir, write_json
from engine.contract.sources.records import Record
from engine.models.qwen3_vl import VisionModel
from engine.run import memory
from engine.run.checkpoint import CheckpointStore
from engine.run.lineage import snapshot
from engine.stage2.evaluation import Evaluation
from engine.stage2.inspect import shown
from engine.stage2.inspect.thumbnails import Thumbnails
from engine.stage2.ranks import Ranks
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.trainer import RandomState, Stage2Trainer, StepLog

_SHOWN = 600
"""Characters of a text in a sample event."""
_SAMPLES = 4
"""Rollouts of a step that people get to see at once, and of which files keep picture and roles;
of the others they keep the picture as long as a run has few."""
_GATE_PICTURES = 200
"""Records of a gate whose pictures are kept, however many a run has."""
PICTURES = "pictures"
"""Folder beside the rollouts."""
_LIVE = {
    "loss": "train/loss",
    "ce": "loss/ce",
    "smoothl1": "loss/bbox_smoothl1",
    "ciou": "loss/bbox_ciou",
    "dropped": "stage2_ab/channel_b/strict_drop/N_drop_invalid",
    "precision": "rollout/precision",
    "recall": "rollout/recall",
    "f1": "rollout/f1",
    "pack_fill": "packing/post_rollout_fill",
}
"""Name in the live result → series."""


@dataclass(frozen=True)
class Earlier:
    """What the attempts before this one measured, as far as the run goes on from it."""

    scores: Mapping[int, float] = field(default_factory=dict)
    """F1 on the validation records by step."""
    f1_of_rollouts: Mapping[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    aborted_after: Sequence[int] = ()

    @classmethod
    def of(cls, run: RunDir, last_step: int | None) -> Earlier:
        """For a run resumed after `last_step`; nothing counts of one that begins anew."""
        if last_step is None:
            return cls()
        scores: dict[int, float] = {}
        rollouts: dict[int, float] = {}
        seconds: dict[int, float] = {}
        for event in usable(run.events):
            if event["type"] == "started":
                kept = event["resumed_from"]
                for found in (scores, rollouts, seconds):
                    _forget_after(found, kept)
            elif event["type"] == "gate" and event["split"] == "select":
                scores[event["step"]] = event["score"]
            elif event["type"] == "metric":
                for found, series in ((rollouts, "rollout/f1"), (seconds, "time/step_s")):
                    if series in event["values"]:
                        found[event["step"]] = event["values"][series]
        for found in (scores, rollouts, seconds):
            _forget_after(found, last_step)
        return cls(scores, rollouts, sum(seconds.values()), _stops(run, last_step))


def _forget_after(found: dict[int, float], step: int | None) -> None:
    for later in [one for one in found if step is None or one > step]:
        del found[later]


def _stops(run: RunDir, last_step: int) -> Sequence[int]:
    """Steps after which earlier attempts were stopped, from the run card."""
    try:
        trials = json.loads(run.lineage.read_bytes())["trials"]
    except FileNotFoundError:
        return []
    return [t["step"] for t in trials if t["kind"] == "aborted" and t["step"] <= last_step]


class RunBridge(TrainerCallback):
    """`should_abort` is asked after each step; `trainer` is set once there is one."""

    trainer: Stage2Trainer

    def __init__(
        self,
        run: RunDir,
        events: EventLog,
        store: CheckpointStore,
        *,
        ranks: Ranks,
        should_abort: Callable[[], bool],
        keep: int,
        earlier: Earlier,
        peaks: memory.PeakMeter,
    ) -> None:
        self._run = run
        self._events = events
        self._store = store
        self._ranks = ranks
        self._should_abort = should_abort
        self._keep = keep
        self._peaks = peaks
        self.scores = dict(earlier.scores)
        """F1 on the validation records by step."""
        self.f1_of_rollouts = dict(earlier.f1_of_rollouts)
        """F1 of the training rollouts by Channel-B step."""
        self.is_new = True
        """Nothing was resumed: the same on every rank, whatever the disk says by now."""
        self.aborted = False
        self.facts: dict[str, Any] = {}
        """Goes into every checkpoint's complete.json."""
        self.seconds = earlier.seconds
        self.aborted_after = list(earlier.aborted_after)
        self._began = time.monotonic()
        self._live: dict[str, Any] = {}
        self._thumbnails = Thumbnails(run.rollouts / PICTURES)

    @property
    def best_step(self) -> int | None:
        """The earliest of the best; None before the first evaluation."""
        if not self.scores:
            return None
        return min(self.scores, key=lambda step: (-self.scores[step], step))

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
        self.trainer.first_step = state.global_step
        self.phase("training", state.global_step, state.max_steps)
        if self.is_new:
            self.trainer.random_state = RandomState.take()
            self.trainer.save_now()
        return control

    def learnt(self, log: StepLog) -> None:
        """A step's series, its rollouts, and how the run stands."""
        if log.rolled_out is not None:
            self.f1_of_rollouts[log.step] = log.values["rollout/f1"]
        if not self._ranks.is_first:
            return
        self._events.write("metric", step=log.step, values=log.values)
        self._show(log)
        if log.rolled_out is not None:
            self._record(log)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """A request to stop is heard here, by every rank at once."""
        self.trainer.random_state = RandomState.take()
        if self._ranks.any(self._should_abort()):
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
        if kept and self._ranks.is_first:
            self._events.write("metric", step=state.global_step, values=kept)

    def on_evaluate(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> Any:
        """One gate an evaluation; a new best is saved at once, so that it can be published."""
        found = self.trainer.last_evaluation
        assert found is not None
        assert metrics is not None
        step = state.global_step
        self.scores.setdefault(step, found.f1)
        is_best = self.best_step == step
        if self._ranks.is_first:
            self._events.write("metric", step=step, values=dict(metrics))
            records = self.trainer.eval_dataset
            self.gate("select", step, found, records, selected=is_best)  # type: ignore[arg-type]
        if is_best:
            control.should_save = step > 0
            self._link()
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Seal what the Trainer wrote, then let older checkpoints go."""
        if self._ranks.size > 1:
            self._ranks.gather([None])  # every rank has written its random state
        if self._ranks.is_first:
            self._seal(state.global_step)
        return control

    # --- what the composition root says ---

    def phase(self, name: str, step: int, max_steps: int | None = None, **more: Any) -> None:
        """Where the run is; how many steps there are stays as it was, unless it is said."""
        if max_steps is not None:
            more["max_steps"] = max_steps
        if self._ranks.is_first:
            self._events.write("progress", phase=name, step=step, **more)

    def gate(
        self,
        split: str,
        step: int,
        found: Evaluation,
        records: Sequence[Record],
        *,
        selected: bool,
    ) -> None:
        """One point of a held-out curve, with its answers to `records` in a file."""
        if not self._ranks.is_first:
            return
        self._events.write(
            "gate",
            step=step,
            split=split,
            score=found.f1,
            n=len(found.judged),
            ci95=list(found.ci95),
            temp=0.0,
            selected=selected,
        )
        rows = [
            _row(one, text) | self._drawn(one, record, sparingly=index >= _GATE_PICTURES)
            for index, (one, text, record) in enumerate(
                zip(found.judged, found.texts, records, strict=True)
            )
        ]
        _write_lines(self._run.rollouts / f"heldout-{split}-{step:06d}.jsonl", rows)

    def card(self) -> dict[str, Any]:
        """The run card, also written down."""
        found = snapshot(self.scores, self.f1_of_rollouts, self.aborted_after).as_dict()
        if self._ranks.is_first:
            write_json(self._run.lineage, found)
        return found

    # --- files ---

    def _show(self, log: StepLog) -> None:
        """The live result: of Channel-B's figures the last known ones stay."""
        values = log.values
        self.seconds += values["time/step_s"]
        known = {name: values[series] for name, series in _LIVE.items() if series in values}
        self._live |= {"channel": log.channel.upper(), **known}
        left = self.trainer.state.max_steps - log.step
        done = max(log.step - self.trainer.first_step, 1)
        self._events.write(
            "progress",
            phase="training",
            step=log.step,
            max_steps=self.trainer.state.max_steps,
            pool_score=self.f1_of_rollouts.get(log.step, self._live.get("f1")),
            eta_s=round((time.monotonic() - self._began) / done * left, 1),
            mem={
                "rss_gb": round(memory.rss_gb(), 3),
                "peak_gb": round(self._peaks.peak_gb, 3),
                "available_gb": round(memory.available_gb(), 3),
            },
            stage2=dict(self._live),
        )

    def _record(self, log: StepLog) -> None:
        assert log.rolled_out is not None
        rolled = log.rolled_out
        channel_b = self.trainer.parts.channel_b
        pieces = channel_b.pieces
        texts = [
            b"".join(pieces.of_all(response.ids)).decode(errors="replace")
            for response in rolled.responses
        ]
        rows = [
            _row(one, text)
            | self._drawn(one, record, sparingly=index >= _SAMPLES)
            | {"ids": list(response.ids)}
            for index, (one, text, record, response) in enumerate(
                zip(rolled.judged, texts, log.records, rolled.responses, strict=True)
            )
        ]
        monitored = zip(rows, rolled.judged, rolled.responses, strict=True)
        for row, one, response in list(monitored)[:_SAMPLES]:
            row["spans"] = shown.taught_spans(response.ids, one, channel_b.weights, pieces)
        _write_lines(self._run.rollouts / f"train-{log.step:06d}.jsonl", rows)
        seen = zip(rolled.judged, texts, log.records, strict=True)
        items = [_sample(*one) for one in list(seen)[:_SAMPLES]]
        self._events.write("sample", step=log.step, split="train", items=items)

    def _drawn(self, one: JudgedRollout, record: Record, *, sparingly: bool) -> dict[str, Any]:
        """Which record it answers, and the boxes over its first picture."""
        return {
            "record": record.where,
            "picture": self._thumbnails.of(record.images[0], sparingly=sparingly),
            "objects": shown.objects(one),
            "entries": shown.entries(one),
        }

    def seal_weights(self, step: int, vlm: VisionModel) -> None:
        """A checkpoint to score and to publish, which no training goes on from."""
        folder = self._store.folder(step)
        shutil.rmtree(folder, ignore_errors=True)
        model: Any = vlm.model
        model.save_pretrained(folder)
        vlm.tokenizer.save_pretrained(folder)
        vlm.image_processor.save_pretrained(folder)
        self._store.seal(step, self._state(step))

    def _state(self, step: int) -> dict[str, Any]:
        return {"heldout": self.scores.get(step), "selected_step": self.best_step, **self.facts}

    def _seal(self, step: int) -> None:
        began = time.monotonic()
        # the Trainer saves model and tokenizer; without this the folder would be no whole model
        images = self.trainer.parts.learner.vlm.image_processor
        images.save_pretrained(self._store.folder(step))
        sealed = self._store.seal(step, self._state(step))
        self._events.write(
            "checkpoint",
            step=step,
            path=str(sealed.path.relative_to(self._run.root)),
            seconds=time.monotonic() - began,
        )
        self._events.sync()
        self._link()
        self.card()
        self._store.retain(keep=self._keep, always={0, self.best_step or 0})

    def _link(self) -> None:
        best = self.best_step
        if best is not None and self._ranks.is_first and self._stands(best):
            self._store.select(best)

    def _stands(self, step: int) -> bool:
        return step in self._store.complete()


def _row(one: JudgedRollout, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "invalid": one.parsed.invalid,
        "truncated": one.parsed.truncated,
        "matched": len(one.found.pairs),
        "false": len(one.found.false_positives),
        "missed": len(one.found.missing),
        "dropped": {str(reason): count for reason, count in one.parsed.drops.items()},
    }


def _sample(one: JudgedRollout, text: str, record: Record) -> dict[str, Any]:
    """As the run page shows a completion: its F1 stands for the reward."""
    row = _row(one, text)
    dropped = ", ".join(f"{count} {reason}" for reason, count in row["dropped"].items())
    hits, alone = row["matched"], row["false"] + row["missed"]
    return {
        "prompt": record.where,
        "completion": text[:_SHOWN],
        "reward": 2 * hits / max(2 * hits + alone, 1),
        "reason": f"{hits} matched, {row['false']} false, {row['missed']} missed"
        + (f"; dropped: {dropped}" if dropped else ""),
        "advantage": None,
    }


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The whole file at once: a step done again after a resume replaces its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    temporary.replace(path)
