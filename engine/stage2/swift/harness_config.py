"""The config of a stage-2 trainer inside ms-swift: a YAML file, with ms-swift's own arguments where
both would say the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.stage2.config import Stage2Config, read_config
from engine.contract.stage2.detection import BEST_BY

SETTING = "NIGHTLANE_STAGE2"
"""Environment variable: the YAML file."""
_OWN = ("custom", "stage2_ab", "training", "detection", "global_max_length")
"""Sections of the file; everything else of a stage-2 config is an argument of ms-swift's."""
_OWN_TRAINING = ("packing", "packing_buffer", "packing_min_fill_ratio", "packing_drop_last")
_ARGUMENTS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "seed",
)


def named_config(args: Any) -> Stage2Config:
    """`args`: ms-swift's training arguments. Raises ConfigError with every problem found."""
    path = os.environ.get(SETTING)
    if not path:
        remedy = f"set {SETTING} to a YAML file with custom.trainer_variant"
        raise ConfigError([ConfigProblem(SETTING, None, "is not set", remedy)])
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError([ConfigProblem(SETTING, path, problem, "name a YAML file")]) from error
    return harness_config(parse_yaml(text), args)


def harness_config(raw: Mapping[str, Any], args: Any) -> Stage2Config:
    """Raises ConfigError."""
    twice = list(_said_twice(raw))
    if twice:
        raise ConfigError(twice)
    given = {name: getattr(args, name) for name in _ARGUMENTS}
    best_by = str(args.metric_for_best_model or "").removeprefix("eval_")
    given |= {"metric_for_best_model": best_by} if best_by in BEST_BY else {}
    config = read_config({**raw, "training": {**_training(raw), **given}})
    if config.serves:
        field = "custom.extra.rollout_matching.rollout_backend"
        remedy = "set hf, or run the same config from Nightlane's own queue"
        problem = "is not run inside ms-swift: its servers want their weights sent between steps"
        raise ConfigError([ConfigProblem(field, "vllm", problem, remedy)])
    return config


def require_plain(args: Any, template: Any) -> None:
    """Raises ConfigError where ms-swift would pack rows, or share the model out among processes."""
    problems = []
    if template.packing or template.padding_free:
        remedy = f"leave it out, and set training.packing: true in the file of {SETTING}"
        problem = "would pack rows before there are rollouts"
        problems.append(ConfigProblem("--packing", None, problem, remedy))
    if args.world_size > 1 or args.deepspeed or args.fsdp:
        remedy = "start one process, or run the same config with `ranks` from Nightlane's own queue"
        problem = f"is shared out ({args.world_size} processes), and learnt by one alone"
        problems.append(ConfigProblem("--model", None, problem, remedy))
    if problems:
        raise ConfigError(problems)


def _training(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises ConfigError."""
    given = raw.get("training") or {}
    if not isinstance(given, Mapping):
        remedy = "write packing: true below it, or leave it out"
        raise ConfigError([ConfigProblem("training", given, "is no section", remedy)])
    return given


def _said_twice(raw: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    remedy = "remove it here, and give it to swift sft"
    for name in raw:
        if name not in _OWN:
            yield ConfigProblem(name, None, "is not read inside ms-swift", remedy)
    for name, value in _training(raw).items():
        if name not in _OWN_TRAINING:
            yield ConfigProblem(f"training.{name}", value, "is an argument of ms-swift's", remedy)
