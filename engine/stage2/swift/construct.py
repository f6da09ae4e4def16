"""A stage-2 trainer from what ms-swift hands to the trainer it constructs.

Model, template, training arguments and rows are ms-swift's; which trainer, and all that it reads
beside them, stands in the YAML file that NIGHTLANE_STAGE2 names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from swift.dataset import LazyLLMDataset
from swift.utils import get_logger

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.sources.records import Record, read_record
from engine.contract.stage2.config import Stage2Config
from engine.models.qwen3_vl import ModelError, VisionModel
from engine.run.ranks import Ranks
from engine.stage2.learn.layout import ModelInputs, require_packing
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.parts import build_parts
from engine.stage2.swift.harness_config import named_config, require_plain
from engine.stage2.swift.harness_trainer import SwiftStage2Trainer
from engine.stage2.swift.template_reader import TemplateReader


def stage2_trainer(
    *, model: Any, args: Any, template: Any, train_dataset: Any, eval_dataset: Any = None
) -> SwiftStage2Trainer:
    """As ms-swift calls the class of a trainer.

    Raises ConfigError for settings that this trainer cannot honour, GroundTruthError for the first
    row that cannot be trained on, and ModelError for a model other than a Qwen3-VL.
    """
    config = named_config(args)
    require_plain(args, template)
    reader = _reader(model, template)
    train = list(_records(train_dataset, "--dataset"))
    held = [] if eval_dataset is None else list(_records(eval_dataset, "--val_dataset"))
    if config.training.packing:
        prompt = reader(train[0])
        require_packing(reader.vlm, ModelInputs(prompt.ids, prompt.pictures))
    _decide(args, config)
    return SwiftStage2Trainer(
        parts=build_parts(_Log(), config, reader, train, ranks=Ranks()),
        model=model,
        args=args,
        template=template,
        train_dataset=train,
        eval_dataset=held or None,
    )


def _reader(model: Any, template: Any) -> TemplateReader:
    """Prompts by a copy of the template that asks for an answer instead of learning one."""
    vlm = VisionModel(
        model, template.tokenizer, getattr(template.processor, "image_processor", None)
    )
    if vlm.image_processor is None or not hasattr(vlm.core, "get_rope_index"):
        raise ModelError(
            f"--model is a {type(model).__name__}, which has no multimodal positions; "
            "name a Qwen3-VL checkpoint"
        )
    asking = copy(template)
    asking.set_mode("transformers")
    return TemplateReader(vlm, TokenPieces(vlm.tokenizer), question="", template=asking)


def _records(dataset: Any, where: str) -> Iterator[Record]:
    """The rows as they were loaded: ms-swift encodes one when it is asked for, and asks for the
    first alone, to print it.

    Pictures' paths are relative to ROOT_IMAGE_DIR, as ms-swift has it, or to the current directory.
    """
    if not isinstance(dataset, LazyLLMDataset):
        remedy = "leave out --streaming and --truncation_strategy split"
        raise ConfigError([ConfigProblem(where, None, "is encoded already", remedy)])
    folder = Path(os.environ.get("ROOT_IMAGE_DIR", ".")).resolve()
    for number, row in enumerate(dataset.dataset, 1):
        yield read_record(row, f"{where} row {number}", folder)


def _decide(args: Any, config: Stage2Config) -> None:
    """What ms-swift would choose otherwise: logits of every position are read, and the best
    checkpoint is picked by a rollout score, not by an eval loss.
    """
    args.use_logits_to_keep = False
    args.metric_for_best_model = f"eval_{config.best_by}"
    args.greater_is_better = True


class _Log:
    """What the parts say goes to ms-swift's log."""

    def note(self, code: str, text: str) -> None:
        get_logger().info(f"{code}: {text}")

    def warn(self, code: str, text: str) -> None:
        get_logger().warning(f"{code}: {text}")
