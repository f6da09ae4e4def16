"""Names from TRL, verl, Transformers and model servers lead to the name here."""

from __future__ import annotations

import pytest

from engine.contract.elsewhere import ELSEWHERE
from engine.contract.errors import ConfigError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.problems import every_setting
from engine.contract.registry import validate
from engine.contract.stage2.config import Stage2Config

EVERY = {*every_setting(RLRunConfig), *every_setting(Stage2Config)}


def test_every_name_leads_to_a_setting_that_there_is() -> None:
    """A hint to a setting that is gone would be worse than none."""
    assert {one for here in ELSEWHERE.values() for one in here} - EVERY == set()
    assert len(EVERY) > 200


@pytest.mark.parametrize(
    ("word", "here"),
    [
        *(("learning_rate", "lr"), ("LR", "lr"), ("Learning-Rate", "lr"), ("actor_lr", "lr")),
        *(("temperature", "temp"), ("beta", "kl_coef"), ("kl_loss_coef", "kl_coef")),
        *(("num_generations", "group_k"), ("n", "group_k"), ("rollout_n", "group_k")),
        *(("model", "base"), ("model_name_or_path", "base"), ("BASE", "base")),
        *(("per_device_train_batch_size", "micro_batch"), ("batch_size", "tasks_per_step")),
        *(("max_completion_length", "max_new_tokens"), ("max_tokens", "max_new_tokens")),
        *(("gradient_clip", "grad_clip"), ("max_grad_norm", "grad_clip")),
        *(("top_p", "sampling.top_p"), ("top_k", "sampling.top_k")),
        *(("skip_chat_template", "prompting.skip_chat_template"), ("loss", "objective.loss")),
        *(("loss_type", "objective.loss"), ("epsilon", "objective.clip_low")),
        *(("reward_funcs", "verifier"), ("dataset", "data.source"), ("lora_r", "lora_rank")),
        *(("use_vllm", "rollout_backend"), ("weight_decay", "optim.weight_decay")),
        ("eval_steps", "heldout_every"),
        *(("warmup_steps", "optim.warmup_steps"), ("group_kk", "group_k")),
    ],
)  # fmt: skip
def test_an_rl_run_is_told_the_name_here(word: str, here: str) -> None:
    """However it is written, and where it belongs."""
    with pytest.raises(ConfigError) as refused:
        validate("rl_run", {"base": "embedded:qwen3-tiny", "tuning": "full", word: 1})

    assert f"{word}: is not a setting; did you mean {here}?" in str(refused.value)


@pytest.mark.parametrize(
    ("word", "here"),
    [
        ("learning_rate", "training.learning_rate"),
        ("lr", "training.learning_rate"),
        ("training.lr", "learning_rate"),
        ("training.LEARNING_RATE", "learning_rate"),
        ("model.base", "path"),
        ("model.model_name_or_path", "path"),
        ("max_steps", "training.max_steps"),
        ("b_ratio", "stage2_ab.schedule.b_ratio"),
        ("iou_gate", "custom.extra.rollout_matching.iou_gate"),
        ("dataset", "data.train_jsonl"),
    ],
)
def test_a_stage2_run_is_told_the_name_here(word: str, here: str) -> None:
    """Its training arguments are Transformers' own."""
    section, _, name = word.rpartition(".")
    raw = {section: {name: 1}} if section else {name: 1}
    with pytest.raises(ConfigError) as refused:
        validate("stage2_ab", {"custom": {"trainer_variant": "stage2_ab_training"}} | raw)

    assert f"{word}: is not a setting" in str(refused.value)
    assert f"did you mean {here}?" in str(refused.value)
