"""Stage-2 on Transformers' `Trainer`: raw samples in, one update per window out.

The Trainer keeps the data, the optimizer, the schedule, the checkpoints and the loop; this class
fills its three open places: `training_step`, `evaluate` and `log`. Micro-steps only collect raw
samples; the window's last one learns everything, as `Stage2Parts.window` says. The forward runs on
the model itself, not on its data-parallel wrapper: ranks may learn unequal numbers of packs, and
add their gradients up once. Knows no event and no run directory.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from engine.contract.sources.records import Record
from engine.models.qwen3_vl import VisionModel
from engine.run.pace import busy
from engine.run.ranks import Ranks
from engine.run.stop import Collapsed, Diagnosis
from engine.stage2.evaluation import Evaluation, RolloutEval
from engine.stage2.rollout.base import seed_base
from engine.stage2.rollout_step import RolledOut, RolloutStep
from engine.stage2.schedule import Channel
from engine.stage2.target.judge import JudgedRollout, judge_metrics
from engine.stage2.target.match import match_metrics
from engine.stage2.window import WindowLearner

_NOT_FINITE_REMEDY = "lower training.learning_rate, or raise training.warmup_steps"


@dataclass(frozen=True)
class Stage2Parts:
    """What the trainer is wired from."""

    vlm: VisionModel
    window: WindowLearner
    """What a window of samples comes to: the one part in which the two trainers differ."""
    rollouts: RolloutStep
    evaluation: RolloutEval
    ranks: Ranks


@dataclass(frozen=True, slots=True)
class StepLog:
    """One optimizer step, the same on every rank."""

    step: int
    """From 1: the number of updates made."""
    channel: Channel | None
    """None of a trainer that has none."""
    values: dict[str, float]
    """Series and their values."""
    rolled_out: RolledOut | None
    """This rank's own rollouts, where the step has some."""
    records: tuple[Record, ...]
    """The samples this rank learnt from."""


class StepCallback(TrainerCallback):
    """Hears of each step once its gradients stand, before the optimizer moves."""

    def on_learnt(self, log: StepLog) -> None:
        """The same on every rank, but for the rank's own rollouts."""


def identity(samples: list[Record]) -> list[Record]:
    """Collation: the raw samples as they are; rollouts are built from them."""
    return samples


class Stage2Trainer(Trainer):
    """`train` raises Collapsed before the optimizer takes what is no number."""

    def __init__(self, *, parts: Stage2Parts, **given: Any):
        super().__init__(data_collator=identity, **given)  # type: ignore[arg-type]
        self.hold(parts)

    def hold(self, parts: Stage2Parts) -> None:
        """Begin with nothing collected; a harness's own trainer is constructed in another way."""
        self.parts = parts
        self._window: list[Record] = []
        self._pending: dict[str, float] = {}
        self.last_evaluation: Evaluation | None = None
        self._random_state = RandomState.take()

    # --- the Trainer's open places ---

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: Any,
        num_items_in_batch: Any = None,  # noqa: ARG002 - its contract; a window counts samples
    ) -> Tensor:
        """Collect; on the window's last micro-step learn. The window's loss, 0 before that."""
        self._window += inputs
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.args.device)
        window, self._window = self._window, []
        model.train()
        loss = self._learn(window)
        return torch.tensor(loss, device=self.args.device)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,  # noqa: ARG002 - its contract
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The validation records answered, as `eval_rollout_*` and `eval_detection_*`."""
        records: Sequence[Record] = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[assignment]
        self.last_evaluation = self.parts.evaluation(records)
        metrics = {
            f"{metric_key_prefix}_{name}": value
            for name, value in self.last_evaluation.series.items()
        }
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's own log line, with the series of the last step beside its loss."""
        if "loss" in logs:
            logs = logs | self._pending
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - its contract
        """Raw samples have no tokens to count yet."""
        return 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """A large model takes a while to be written."""
        with busy("save a checkpoint"):
            super()._save_checkpoint(model, trial)

    def load_weights(self, folder: Path) -> None:
        """A checkpoint's weights alone, to score them."""
        self._load_from_checkpoint(str(folder), self.model)

    def is_over(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is one of the last step; its state and weights are taken over then.

        `train` would make one step more of it where the run ends within an epoch.
        """
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if state.global_step < state.max_steps:
            return False
        self.state = state
        self.load_weights(checkpoint)
        if self.args.eval_on_start:
            self.evaluate()
        return True

    def end_of_step(self) -> None:
        """A step is whole: a checkpoint of it must hold the random numbers as they are now."""
        self._random_state = RandomState.take()

    def save_now(self) -> None:
        """A checkpoint of the last whole step, when the one after it was given up half-way."""
        self._random_state.restore()
        assert self.model is not None
        self._save_checkpoint(self.model, trial=None)
        self.control = self.callback_handler.on_save(self.args, self.state, self.control)

    # --- one window ---

    def _learn(self, window: Sequence[Record]) -> float:
        """Gradients of the window's loss; returns that loss."""
        began = time.perf_counter()
        step, parts = self.state.global_step, self.parts
        learnt = parts.window(window, step)
        values = learnt.values
        if learnt.rolled_out is not None:
            values |= self._rollout_values(learnt.rolled_out)
        _require_finite(step + 1, values["train/loss"], list(parts.vlm.model.parameters()))
        values["time/step_s"] = time.perf_counter() - began
        self._pending = values
        log = StepLog(step + 1, learnt.channel, values, learnt.rolled_out, learnt.records)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, StepCallback):
                callback.on_learnt(log)
        return values["train/loss"]

    def _rollout_values(self, rolled_out: RolledOut) -> dict[str, float]:
        """Of the step's rollouts, over all ranks."""
        ranks, rollouts = self.parts.ranks, self.parts.rollouts
        judged: list[JudgedRollout] = ranks.gather(list(rolled_out.judged))
        responses = ranks.gather(list(rolled_out.responses))
        lengths = [len(response.ids) for response in responses]
        return {
            **judge_metrics(judged, rollouts.targets.series),
            **rollouts.gate_metrics(),
            "pool/score": match_metrics([one.found for one in judged])["rollout/f1"],
            "stage2/rollout_seed_base": float(seed_base(self.args.seed, self.state.global_step)),
            "rollout/tokens_mean": sum(lengths) / max(len(lengths), 1),
            "rollout/repeat_terminated": float(sum(r.guarded for r in responses)),
            **rolled_out.seconds,
        }


def _require_finite(step: int, loss: float, parameters: Sequence[torch.nn.Parameter]) -> None:
    """Raises Collapsed. Every rank has the same loss and the same gradients by now."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    for what, value in (("the loss", loss), ("the gradient's norm", float(norm))):
        if not math.isfinite(value):
            raise Collapsed(Diagnosis.not_a_number(step, what, value, _NOT_FINITE_REMEDY))


@dataclass(frozen=True, slots=True)
class RandomState:
    """The process's random numbers, to go back to."""

    python: Any
    numpy: Any
    cpu: Tensor
    cuda: Sequence[Tensor]

    @classmethod
    def take(cls) -> RandomState:
        import numpy as np  # noqa: PLC0415 - beside its only other use

        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda)

    def restore(self) -> None:
        import numpy as np  # noqa: PLC0415

        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
