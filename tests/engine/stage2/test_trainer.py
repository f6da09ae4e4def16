"""The trainer from plain Transformers code: arguments, callbacks, data loader, checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from engine.contract.sources.records import Record, read_records
from engine.contract.stage2.config import read_config
from engine.models.qwen3_vl import FORWARD_KEYS, load
from engine.run.ranks import Ranks
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.parts import build_parts
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.trainer import Stage2Trainer
from tests.engine.stage2.upstream import replaced, snapshot

Recipe = dict[str, Any]


class Silent:
    def note(self, code: str, text: str) -> None:
        """Nobody listens."""

    warn = note


class Heard(TrainerCallback):
    """Of Transformers' own kind: knows nothing of stage 2."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []
        self.saved: list[int] = []

    def on_log(
        self,
        args: Any,  # noqa: ARG002 - its contract, and the next two
        state: Any,  # noqa: ARG002
        control: Any,  # noqa: ARG002
        logs: Any = None,
        **_: Any,
    ) -> None:
        self.logs.append(dict(logs))

    def on_save(
        self,
        args: Any,  # noqa: ARG002 - its contract
        state: Any,
        control: Any,  # noqa: ARG002
        **_: Any,
    ) -> None:
        self.saved.append(state.global_step)


def plain_trainer(
    recipe: Recipe, records: Sequence[Record], output: Path, heard: TrainerCallback, **more: Any
) -> Stage2Trainer:
    """As a script of somebody's would put it together: no queue, no run directory."""
    config = read_config(recipe)
    vlm = load(str(config.model.path), dtype="float32", attn_implementation="sdpa")
    reader = PromptReader(vlm, TokenPieces(vlm.tokenizer), config.data.prompt)
    given = {"max_steps": 4, "save_steps": 2, "logging_steps": 1, "learning_rate": 1e-3} | more
    return Stage2Trainer(
        parts=build_parts(Silent(), config, reader, records, ranks=Ranks()),
        model=vlm.model,
        args=TrainingArguments(
            output_dir=str(output),
            per_device_train_batch_size=config.training.per_device_train_batch_size,
            gradient_accumulation_steps=config.training.accumulation_steps(1),
            remove_unused_columns=False,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=11,
            **given,
        ),
        train_dataset=records,
        eval_dataset=records[:2],
        processing_class=vlm.tokenizer,
        callbacks=[heard],
    )


def weights(trainer: Stage2Trainer) -> dict[str, torch.Tensor]:
    assert trainer.model is not None
    return trainer.model.state_dict()


@pytest.mark.requirement("AB-02")
@pytest.mark.parametrize("kind", ["ab_recipe", "matching_recipe"])
def test_plain_transformers_code_trains_saves_and_resumes(
    kind: str, records: list[Record], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its own callback hears the steps; from checkpoint-2 the rest is learnt bit for bit."""
    recipe, heard, again = request.getfixturevalue(kind), Heard(), Heard()
    whole = plain_trainer(recipe, records, tmp_path, heard)
    whole.train()

    resumed = plain_trainer(recipe, records, tmp_path, again)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))

    assert heard.saved == [2, 4]
    assert again.saved == [4]
    losses = [log["train/loss"] for log in heard.logs if "train/loss" in log]
    assert len(losses) == 4
    assert [log["train/loss"] for log in again.logs if "train/loss" in log] == losses[2:]
    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.requirement("AB-02")
def test_the_data_loader_hands_over_raw_samples(
    ab_recipe: Recipe, records: list[Record], tmp_path: Path
) -> None:
    """Messages, objects and pictures as they were read: rollouts are made of them."""
    trainer = plain_trainer(ab_recipe, records, tmp_path, Heard())

    batches = list(trainer.get_train_dataloader())

    assert {type(one) for batch in batches for one in batch} == {Record}
    assert {id(one) for batch in batches for one in batch} <= {id(one) for one in records}


@pytest.mark.requirement("AB-02", "AB-03")
def test_nothing_but_forward_keys_reaches_the_model(
    ab_recipe: Recipe, records: list[Record], tmp_path: Path
) -> None:
    """In both channels; what `generate` gives itself while it rolls out is its own."""
    trainer = plain_trainer(ab_recipe, records, tmp_path, Heard(), max_steps=2, save_steps=9)
    assert trainer.model is not None
    reached: set[str] = set()

    def look(module: Any, given: Any, named: dict[str, Any]) -> None:
        if module.training:
            reached.update(named)

    trainer.model.register_forward_pre_hook(look, with_kwargs=True)
    trainer.train()

    assert {"input_ids", "inputs_embeds"} <= reached
    assert reached <= FORWARD_KEYS | {"use_cache"}


@pytest.mark.requirement("AB-02")
def test_an_evaluation_is_transformers_own_and_scores_rollouts(
    ab_recipe: Recipe, records: list[Record], tmp_path: Path
) -> None:
    """`eval_strategy` asks for it; the best checkpoint is picked by what it says."""
    heard = Heard()
    asks = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "eval_rollout_f1"}
    trainer = plain_trainer(ab_recipe, records, tmp_path, heard, max_steps=2, **asks)

    trainer.train()

    scored = [log for log in heard.logs if "eval_rollout_f1" in log]
    assert len(scored) == 1
    assert trainer.state.best_metric == scored[0]["eval_rollout_f1"]


def train_and_look(recipe: Recipe, shapes: Path, output: Path) -> set[str]:
    """In a fresh process: what importing and running the trainer replaced in other packages."""
    records = read_records(shapes)
    before = snapshot()
    trainer = plain_trainer(recipe, records, output, Heard(), max_steps=2, save_steps=2)
    trainer.train()
    return replaced(before, snapshot())


_CHILD = """
import sys, json
from pathlib import Path
import transformers, accelerate, peft
from transformers import AutoModelForImageTextToText, Qwen3VLForConditionalGeneration, Trainer
from tests.engine.stage2.upstream import replaced, snapshot
before = snapshot()
from tests.engine.stage2 import test_trainer
told = json.load(sys.stdin)
loaded = replaced(before, snapshot())
ran = test_trainer.train_and_look(told["recipe"], Path(told["shapes"]), Path(told["output"]))
print("REPLACED " + json.dumps(sorted(loaded | ran)))
"""


@pytest.mark.requirement("AB-02")
def test_nothing_of_transformers_is_patched(
    ab_recipe: Recipe, shapes_file: Path, tmp_path: Path
) -> None:
    """No function, class or method of it stands for another after both channels ran."""
    told = {"recipe": ab_recipe, "shapes": str(shapes_file), "output": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )

    (line,) = [one for one in done.stdout.splitlines() if one.startswith("REPLACED ")]
    assert json.loads(line.removeprefix("REPLACED ")) == []


def test_a_patch_would_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a method, and of a function that a module has."""
    before = snapshot({"transformers"})
    monkeypatch.setattr(Trainer, "get_train_dataloader", lambda _: None)
    monkeypatch.setattr("transformers.trainer.default_data_collator", list)

    assert replaced(before, snapshot({"transformers"})) == {
        "transformers.trainer.Trainer.get_train_dataloader",
        "transformers.trainer.default_data_collator",
    }
