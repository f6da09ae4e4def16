"""A GRPO run of TRL becomes a config that holds here, and what could not be carried is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.forms.trl_import import imported
from app.forms.trl_values import Said, said_by
from app.forms.verl_import import of_verl
from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError
from engine.contract.registry import validate
from tests.app.conftest import Said as Output

pytestmark = pytest.mark.requirement("AP-04")
SCRIPT = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from peft import LoraConfig

MODEL = "acme/small"
dataset = load_dataset("trl-lib/DeepMath-103K", split="train")

def brevity(completions, **kwargs):
    return [-len(text) for text in completions]

args = GRPOConfig(
    output_dir="out",
    learning_rate=1e-5,
    num_generations=8,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    max_completion_length=512,
    max_steps=300,
    beta=0.04,
    epsilon_high=0.28,
    loss_type="dr_grpo",
    scale_rewards=False,
    warmup_ratio=0.1,
    lr_scheduler_type="cosine",
    top_entropy_quantile=0.2,
    run_name=MODEL.split("/")[0],
)
trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=brevity,
    args=args,
    train_dataset=dataset,
    peft_config=LoraConfig(r=32, lora_alpha=64),
)
trainer.train()
raise SystemExit("it was run")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "grpo_math.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_becomes_a_config_without_being_run(script: Path) -> None:
    """Each argument by its meaning: 16 x 4 completions are eight prompts of eight."""
    found = imported(said_by(script))

    assert found.config == {
        "base": "acme/small",
        "tuning": "lora",
        "data": {"source": "trl-lib/DeepMath-103K", "split": "train"},
        "lr": 1e-5,
        "kl_coef": 0.04,
        "group_k": 8,
        "max_new_tokens": 512,
        "temp": 1.0,
        "grad_clip": 1.0,
        "micro_batch": 16,
        "seed": 42,
        "lora_rank": 32,
        "lora_alpha": 64,
        "objective": {
            "epochs": 1,
            "loss": "dr_grpo",
            "clip_low": 0.2,
            "clip_high": 0.28,
            "advantages": "group_mean",
        },
        "optim": {
            "gradient_checkpointing": True,
            "precision": "bf16",
            "schedule": "cosine",
            "warmup_steps": 30,
        },
        "tasks_per_step": 8,
        "max_steps": 300,
        "verifier": "grpo_math:brevity",
    }
    said = "\n".join(found.notes)
    assert "not carried: top_entropy_quantile=0.2" in said
    assert "computed in the script, so not carried: run_name=MODEL.split('/')[0]" in said
    assert "NIGHTLANE_REWARD_MODULES=grpo_math" in said
    assert "hub name" in said


def test_what_comes_out_holds_here_once_its_rows_and_verifier_are_named(
    script: Path, tmp_path: Path
) -> None:
    """No setting is unknown and none is out of its bounds."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1?", "answer": "2"}\n')
    config = parse_yaml(imported(said_by(script)).text)
    config |= {"data": {"source": str(rows)}, "verifier": "math", "corpus_min": 1}

    model: Any = validate("rl_run", config)

    assert model.objective.loss == "dr_grpo"
    assert model.tasks_per_step * model.group_k == 64


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo"])
def test_every_loss_of_trl_becomes_one_that_holds_here(loss: str) -> None:
    """Those that are not here are told; dapo is TRL's own, without refill and overlong penalty."""
    given = {"loss_type": loss, "epsilon_high": 5.0 if loss == "cispo" else 0.28}
    found = imported(Said({"model": "acme/small", **given}))
    config = {**found.config, "data": {"source": "embedded:word_problems"}, "verifier": "gsm8k"}

    model: Any = validate("rl_run", config)

    assert (loss == "sapo") is any("there is no sapo here" in note for note in found.notes)
    if loss == "dapo":
        assert model.objective.zero_signal_used == "keep"
        assert model.objective.clip_bounds == (0.8, 1.28)
    if loss == "cispo":
        assert model.objective.clip_bounds[1] == 5.0


def test_a_top_k_that_is_off_is_off_here() -> None:
    """vLLM writes -1 for it."""
    assert imported(Said({"top_k": -1})).config["sampling"]["top_k"] == 0


def test_a_cap_of_cispo_that_cannot_be_here_is_told() -> None:
    """TRL's own default caps a weight at 0.2."""
    found = imported(Said({"model": "acme/small", "loss_type": "cispo"}))

    assert "clip_high" not in found.config["objective"]
    assert any("caps a token's weight at 0.2" in note for note in found.notes)


def test_several_updates_of_one_generation_are_minibatches_of_a_step() -> None:
    """64 completions in 8 calls, an update every 2: four updates; 100 of those are 25 steps."""
    found = imported(
        Said(
            {
                "per_device_train_batch_size": 8,
                "gradient_accumulation_steps": 2,
                "steps_per_generation": 8,
                "max_steps": 100,
            }
        )
    )

    assert found.config["tasks_per_step"] == 8
    assert found.config["objective"]["minibatches"] == 4
    assert found.config["max_steps"] == 25


def test_a_notebook_of_unsloth_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Lines for its shell aside."""
    code = [
        "%%capture\n!pip install unsloth",
        "model, tokenizer = FastLanguageModel.from_pretrained(\n"
        '    model_name="unsloth/Qwen3-4B", max_seq_length=2048, load_in_4bit=True)',
        "model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=32)",
        "training_args = GRPOConfig(learning_rate=5e-6, num_generations=4)",
    ]
    cells = [{"cell_type": "markdown", "source": ["# hi"]}]
    cells += [{"cell_type": "code", "source": [text]} for text in code]
    path = tmp_path / "qwen.ipynb"
    path.write_text(json.dumps({"cells": cells}))

    config = imported(said_by(path)).config

    assert (config["base"], config["tuning"]) == ("unsloth/Qwen3-4B", "lora")
    assert (config["lora_rank"], config["lora_alpha"]) == (16, 32)
    assert (config["lr"], config["group_k"]) == (5e-6, 4)


def test_the_command_writes_yaml_with_its_notes_in_front(
    cockpit: Callable[..., Output], tmp_path: Path
) -> None:
    """Of a YAML file of TRL's own command line."""
    (tmp_path / "grpo.yaml").write_text(
        "model_name_or_path: acme/small\nuse_peft: true\nlora_r: 8\nlearning_rate: 2.0e-6\n"
    )

    said = cockpit("import-trl", str(tmp_path / "grpo.yaml"), "-o", str(tmp_path / "mine.yaml"))

    assert said.code == 0, said.err
    text = (tmp_path / "mine.yaml").read_text()
    assert text.startswith("# Read from another trainer's settings. Look at these:\n# - ")
    assert parse_yaml(text)["lora_rank"] == 8
    assert "data.source: the rows could not be read" in said.err


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.py", "def (", "is no Python script"),
        ("a.py", "\x00", "is no Python script"),
        ("a.ipynb", "{}", "is no notebook"),
        ("a.yaml", "a: [1", "is not valid YAML"),
        ("a.yaml", "num_generations: many", "num_generations: is no whole number from 1 on"),
        ("a.yaml", "epsilon: wide", "epsilon: is no number"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    """With what to do; and a file that is not there."""
    (tmp_path / name).write_text(content)

    with pytest.raises(ConfigError) as refused:
        imported(said_by(tmp_path / name))

    assert problem in str(refused.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        said_by(tmp_path / "gone.py")


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """It is refused, or says what it found."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.py"
    path.write_text(text, "utf-8", errors="replace")

    try:
        imported(said_by(path))
    except ConfigError:
        return


VERL = """\
#!/bin/bash
set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.train_batch_size=256 \\
    data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \\
    actor_rollout_ref.model.lora_rank=64 \\
    actor_rollout_ref.actor.optim.lr=3e-6 \\
    actor_rollout_ref.actor.optim.lr_warmup_steps=-1 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    actor_rollout_ref.actor.clip_ratio_high=0.28 \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.rollout.load_format=safetensors \\
    trainer.n_gpus_per_node=1 \\
    trainer.total_epochs=15 $@
"""


def test_a_command_line_of_verl_becomes_a_config_too(tmp_path: Path) -> None:
    """256 prompts in minibatches of 64; a variable of the shell is told, not taken."""
    (tmp_path / "run.sh").write_text(VERL)

    found = of_verl(tmp_path / "run.sh")
    said = "\n".join(found.notes)
    source = {"source": "embedded:word_problems"}
    model: Any = validate("rl_run", {**found.config, "data": source, "verifier": "gsm8k"})

    assert (model.tasks_per_step, model.group_k, model.objective.minibatches) == (256, 5, 4)
    assert (model.lr, model.kl_coef, model.tuning, model.lora_rank) == (3e-6, 0.001, "lora", 64)
    assert model.objective.clip_bounds == (0.8, 1.28)
    assert (model.objective.aggregation, model.rollout_backend) == ("token_mean", "vllm")
    assert "$HOME/data/gsm8k/train.parquet is a variable of the shell" in said
    assert "max_steps: verl makes 15 epochs" in said
    assert "not carried: actor_rollout_ref.rollout.load_format=safetensors" in said


@pytest.mark.parametrize("text", ["ls -l\n", 'echo "open\n', "\x00"])
def test_a_script_that_starts_no_verl_is_refused(tmp_path: Path, text: str) -> None:
    """With what to name instead."""
    (tmp_path / "run.sh").write_text(text)

    with pytest.raises(ConfigError, match="shell script"):
        of_verl(tmp_path / "run.sh")
