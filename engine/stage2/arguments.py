"""A config's `training` as Transformers' `TrainingArguments`, and whether this machine honours it.

The class takes much that only fails when it is used: an optimizer whose library is not installed, a
schedule without its settings. Knows no record and trains nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.envelope import SAVE_STEPS
from engine.contract.stage2.training_arguments import DECIDED, schedule_settings
from engine.run.checkpoint import Checkpoint

TRAINER_STATE = "trainer_state.json"
"""What the Trainer leaves in a checkpoint that training can go on from."""
_REFUSALS = (ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What Transformers raises for an argument, according to who reads it."""


def training_arguments(
    config: Stage2Config, *, output_dir: Path, evaluates: bool, eval_at_start: bool
) -> TrainingArguments:
    """The config's `training`, with what this kind decides itself."""
    training = config.training
    # what is left of those says what is done here anyway, or the config had been refused
    decided = {*DECIDED, "remove_unused_columns"}
    given = {name: value for name, value in training.passed_on.items() if name not in decided}
    given.setdefault("dataloader_pin_memory", torch.cuda.is_available())
    given.setdefault("logging_steps", 1)
    given.setdefault("save_steps", SAVE_STEPS)
    given.setdefault("eval_steps", given["save_steps"])
    given.setdefault("report_to", "none")
    settings = schedule_settings(given)
    if settings is not None:
        given["lr_scheduler_kwargs"] = settings
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    return TrainingArguments(
        output_dir=str(output_dir),
        per_device_train_batch_size=training.per_device_train_batch_size,
        gradient_accumulation_steps=training.accumulation_steps(world_size),
        seed=training.seed,
        remove_unused_columns=False,
        disable_tqdm=True,
        save_strategy="steps",
        eval_strategy="steps" if evaluates else "no",
        eval_on_start=evaluates and eval_at_start,
        metric_for_best_model=f"eval_{config.best_by}" if evaluates else None,
        greater_is_better=True if evaluates else None,
        use_cpu=not torch.cuda.is_available(),
        **given,
    )


def score_is_missing(
    config: Stage2Config, resumed: Checkpoint | None, scores: Collection[int]
) -> bool:
    """Whether the step that a run goes on from should have been scored, and a stop came first.

    `scores`: the steps that have a score.
    """
    step = 0 if resumed is None else resumed.step
    if resumed is None or step == 0:
        return step not in scores
    # what the Trainer made of epochs and shares of a run
    state = read_json_object(resumed.path / TRAINER_STATE)
    due = step == state["max_steps"] or step % state["eval_steps"] == 0
    delay = config.training.passed_on.get("eval_delay", 0)
    return due and step >= delay and step not in scores


def require_arguments(config: Stage2Config, model: Any, output_dir: Path) -> None:
    """Raises ConfigError for what Transformers would refuse on this machine, hours later perhaps.

    Optimizer, schedule and reporters are looked for as the Trainer will; none of them is kept.
    """
    try:
        found = training_arguments(
            config, output_dir=output_dir, evaluates=True, eval_at_start=False
        )
        Trainer.get_optimizer_cls_and_kwargs(found, model)
        get_scheduler(
            found.lr_scheduler_type,
            torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0),
            num_warmup_steps=found.get_warmup_steps(10),
            num_training_steps=10,
            scheduler_specific_kwargs=found.lr_scheduler_kwargs,  # type: ignore[arg-type]
        )
        reporters: Sequence[Callable[[], Any]] = get_reporting_integration_callbacks(
            found.report_to
        )  # type: ignore[no-untyped-call]
        for reporter in reporters:
            reporter()
    except _REFUSALS as error:
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        remedy = "correct or remove that argument, or install what it needs"
        problem = ConfigProblem("training", None, f"is refused by Transformers: {why}", remedy)
        raise ConfigError([problem]) from error
