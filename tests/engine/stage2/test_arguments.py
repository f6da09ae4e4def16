"""Every training argument that a config may hold is read; every remedy names real settings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import transformers.integrations.integration_utils
import transformers.optimization
import transformers.trainer
import transformers.trainer_callback
import transformers.trainer_optimizer
import transformers.training_args
from pydantic import BaseModel

from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.kinds.requant import RequantConfig
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.problems import _model_in
from engine.contract.registry import kinds, make_smaller
from engine.contract.stage2.config import Stage2Config
from engine.contract.stage2.training_arguments import DECIDED, NEEDS, TRAINING_ARGUMENTS
from engine.stage2.trainer import Stage2Trainer

ROOT = Path(__file__).resolve().parents[3]
UNREACHED = {
    # of the Trainer, what an evaluation of its own, a search or a push would call
    *("evaluation_loop", "prediction_step", "predict", "compute_loss", "push_to_hub"),
    *("init_hf_repo", "_push_from_checkpoint", "_get_num_items_in_batch", "_get_eval_sampler"),
    *("_track_num_input_tokens", "num_tokens", "get_eval_dataloader", "hyperparameter_search"),
    # its data-parallel wrapper, which no forward runs through, and what only checks or sets values
    *("_build_accelerator_args", "_validate_args", "__post_init__", "set_training"),
    *("set_optimizer", "set_lr_scheduler", "set_dataloader", "set_evaluate", "set_logging"),
    *("set_save", "set_testing", "set_push_to_hub", "_process_fsdp_args"),
}
BY_US = {
    "per_device_eval_batch_size": "Stage2Config.eval_decode_batch_size",
    "remove_unused_columns": "always false, and true is refused",
    "ddp_timeout": "Ranks.join",
    "gradient_checkpointing": "TrainingArguments: the older name of activation_checkpointing",
    "gradient_checkpointing_kwargs": "TrainingArguments: the older name",
    "eval_steps": "TrainerCallback's flow, by name",
    "save_steps": "TrainerCallback's flow, by name",
    "logging_steps": "TrainerCallback's flow, by name",
    "tf32": "TrainingArguments sets it as it is made",
    "bf16": "TrainingArguments sets mixed_precision as it is made",
}
"""Read elsewhere, or under a name that is put together."""


def reads(module: ModuleType) -> Iterator[tuple[str, str]]:
    """(argument, function that reads it)."""
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in TRAINING_ARGUMENTS:
                    yield node.attr, function.name


@pytest.mark.requirement("AB-01")
def test_every_training_argument_is_read_or_refused() -> None:
    """One that is accepted and read nowhere promises what no run does."""
    overridden = {name for name in vars(Stage2Trainer) if not name.startswith("__")}
    read = {
        name
        for module in (
            transformers.trainer,
            transformers.trainer_callback,
            transformers.trainer_optimizer,
            transformers.training_args,
            transformers.optimization,
            transformers.integrations.integration_utils,
        )
        for name, function in reads(module)
        if function not in UNREACHED | overridden
    }

    assert {*DECIDED} <= TRAINING_ARGUMENTS
    assert TRAINING_ARGUMENTS - {*DECIDED} - {*BY_US} - read == set()
    assert NEEDS.keys() <= TRAINING_ARGUMENTS - {*DECIDED}


def settings_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every setting of a config by dotted name, sections too."""
    for name, field in model.model_fields.items():
        yield before + name
        section = _model_in(field.annotation)
        if section is not None:
            yield from settings_of(section, f"{before}{name}.")


STAGE2 = {*settings_of(Stage2Config), *(f"training.{name}" for name in TRAINING_ARGUMENTS)}
RL = {*settings_of(RLRunConfig)}
EVAL = {*settings_of(EvalRerunConfig)}
REQUANT = {*settings_of(RequantConfig)}
_TOLD = re.compile(
    r"\b(?:set|lower|raise|leave|or|and|keep|give|add|instead of|list|remove) "
    r"([a-z][a-z0-9]*(?:[._][a-z0-9]+)+)(?![.\w(/-])"
)
"""A setting in a remedy: behind a verb, with an underscore or a dot in it."""

NO_SETTINGS = {"response_token_ids", "inputs_embeds"}
"""What a rollout file holds, and a forward pass."""


def remedies(folder: str) -> Iterator[tuple[str, str]]:
    """(file, name) of what the sentences of a folder tell people to set."""
    files = [ROOT / folder] if folder.endswith(".py") else sorted((ROOT / folder).rglob("*.py"))
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                told = set(_TOLD.findall(node.value.replace("\n", " ")))
                yield from ((path.name, name) for name in told - NO_SETTINGS)


def known(name: str, settings: set[str]) -> bool:
    """A setting's whole name, or the end of one."""
    return any(one == name or one.endswith(f".{name}") for one in settings)


@pytest.mark.parametrize(
    ("folders", "settings"),
    [
        (
            ("engine/stage2", "engine/contract/stage2", "engine/contract/stage2_kind.py"),
            STAGE2,
        ),
        (("engine/rl", "engine/contract/rl", "engine/contract/kinds/rl_run.py"), RL),
        (("engine/eval_rerun", "engine/contract/kinds/eval_rerun.py"), EVAL),
        (("engine/requant", "engine/contract/kinds/requant.py"), REQUANT),
        (("engine/run", "engine/models"), STAGE2 | RL),
    ],
)
def test_a_remedy_names_settings_that_its_kind_has(
    folders: tuple[str, ...], settings: set[str]
) -> None:
    """A person who is told to lower what does not exist is told nothing."""
    told = [found for folder in folders for found in remedies(folder)]

    assert [(file, name) for file, name in told if not known(name, settings)] == []


def test_remedies_are_found_where_they_stand() -> None:
    """Of the check above: it can fail."""
    assert ("preflight.py", "max_new_tokens") in remedies("engine/stage2")
    assert not known("micro_batch", STAGE2)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_a_job_that_did_not_fit_is_told_settings_of_its_own_kind(kind: str) -> None:
    every = {"rl_run": RL, "eval_rerun": EVAL, "requant": REQUANT}
    known_here = every.get(kind, STAGE2)

    assert kinds()[kind].smaller
    assert set(kinds()[kind].smaller) <= known_here
    assert all(name in make_smaller(kind) for name in kinds()[kind].smaller)
    assert make_smaller("of another version") == "make it smaller"
