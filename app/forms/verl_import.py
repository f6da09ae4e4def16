"""The command line of a GRPO run of verl as a config of `rl_run`, with what could not be carried.

Read from the shell script that starts `verl.trainer.main_ppo`; nothing of it is run. Where it is
silent verl's defaults count: 1024 prompts a step in minibatches of 256, one pass, a token mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.forms.trl_import import Imported, put
from engine.contract.documents import UnreadableError, number_of, read_text
from engine.contract.errors import ConfigError, ConfigProblem

PROGRAM = "verl.trainer"
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
_DEFAULTS: Mapping[str, Any] = {
    "data.train_batch_size": 1024,
    "data.max_response_length": 512,
    f"{_ACTOR}optim.lr": 1e-6,
    f"{_ACTOR}ppo_mini_batch_size": 256,
    f"{_ACTOR}ppo_epochs": 1,
    f"{_ACTOR}clip_ratio": 0.2,
    f"{_ACTOR}grad_clip": 1.0,
    f"{_ACTOR}loss_agg_mode": "token-mean",
    f"{_ROLLOUT}temperature": 1.0,
}
_RENAMED = {
    "actor_rollout_ref.model.path": "base",
    "actor_rollout_ref.model.lora_alpha": "lora_alpha",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "optim.gradient_checkpointing",
    "data.train_files": "data.source",
    "data.prompt_key": "data.prompt_field",
    "data.train_max_samples": "data.limit",
    "data.train_batch_size": "tasks_per_step",
    "data.max_response_length": "max_new_tokens",
    f"{_ACTOR}optim.lr": "lr",
    f"{_ACTOR}optim.lr_warmup_steps": "optim.warmup_steps",
    f"{_ACTOR}optim.weight_decay": "optim.weight_decay",
    f"{_ACTOR}grad_clip": "grad_clip",
    f"{_ACTOR}ppo_epochs": "objective.epochs",
    f"{_ACTOR}ppo_micro_batch_size_per_gpu": "micro_batch",
    f"{_ROLLOUT}n": "group_k",
    f"{_ROLLOUT}temperature": "temp",
    f"{_ROLLOUT}top_p": "sampling.top_p",
    f"{_ROLLOUT}gpu_memory_utilization": "vllm.gpu_memory_utilization",
    f"{_ROLLOUT}tensor_model_parallel_size": "vllm.tensor_parallel_size",
    "trainer.total_training_steps": "max_steps",
}
_MEANS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-sum-norm": "constant",
}
_READ = frozenset(
    {
        *(f"{_ACTOR}{name}" for name in ("ppo_mini_batch_size", "use_kl_loss", "kl_loss_coef")),
        *(f"{_ACTOR}{name}" for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high")),
        *(f"{_ACTOR}loss_agg_mode", f"{_ROLLOUT}name", "actor_rollout_ref.model.lora_rank"),
        *("algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo", "trainer.test_freq"),
        *("trainer.total_epochs", "custom_reward_function.path", "custom_reward_function.name"),
    }
)
_UNSET = -1
"""As verl writes a number of steps, rows or tokens that is not given."""
_NEEDLESS = ("trainer.", "ray_kwargs.", "hydra.", "critic.", "actor_rollout_ref.ref.")
"""How settings begin that a run here has no need of."""


def of_verl(path: Path) -> Imported:
    """The run that a script starts. Raises ConfigError."""
    try:
        words = shlex.split(read_text(path, 2**20), comments=True)
    except (UnreadableError, ValueError, OSError) as error:
        remedy = "name the shell script that starts verl.trainer.main_ppo"
        problem = f"cannot be read: {error}"
        raise ConfigError([ConfigProblem("FILE", str(path), problem, remedy)]) from error
    if not any(PROGRAM in word for word in words):
        problem, remedy = f"starts no {PROGRAM}", "name the shell script that does"
        raise ConfigError([ConfigProblem("FILE", str(path), problem, remedy)])
    pairs = (word.lstrip("+").partition("=") for word in words)
    return _imported({name: value for name, mark, value in pairs if mark and "." in name})


def _imported(said: Mapping[str, str]) -> Imported:
    config: dict[str, Any] = {}
    values = {**_DEFAULTS, **{name: _value(text) for name, text in said.items()}}
    notes = list(_translated(config, values, said))
    return Imported(config, notes)


def _value(text: str) -> Any:
    """As hydra reads it, as far as it counts here."""
    if text in {"True", "true", "False", "false"}:
        return text.lower() == "true"
    number = number_of(text)
    return text if number is None else number


def _translated(
    config: dict[str, Any], values: Mapping[str, Any], said: Mapping[str, str]
) -> Iterator[str]:
    for name, here in _RENAMED.items():
        if isinstance(values.get(name), str) and "$" in values[name]:
            yield f"{here}: {values[name]} is a variable of the shell; write its value"
        elif values.get(name) not in {None, _UNSET}:
            put(config, here, values[name])
    rank = values.get("actor_rollout_ref.model.lora_rank")
    config["tuning"] = "lora" if rank else "full"
    if rank:
        config["lora_rank"] = rank
    if values.get(f"{_ROLLOUT}name") == "vllm":
        config["rollout_backend"] = "vllm"
    uses_kl = values.get(f"{_ACTOR}use_kl_loss")
    config["kl_coef"] = values.get(f"{_ACTOR}kl_loss_coef", 0.001) if uses_kl else 0
    yield from _objective(config, values)
    yield from _lengths(config, values)
    yield from _judged(config, values)
    left = [name for name in said if name not in {*_RENAMED, *_READ}]
    needless = sorted(name for name in left if name.startswith(_NEEDLESS))
    if needless:
        yield f"done otherwise here, or not needed: {', '.join(needless)}"
    yield from (f"not carried: {name}={said[name]}" for name in left if name not in needless)


def _objective(config: dict[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    put(config, "objective.loss", "grpo")
    low = values.get(f"{_ACTOR}clip_ratio_low", values[f"{_ACTOR}clip_ratio"])
    put(config, "objective.clip_low", low)
    high = values.get(f"{_ACTOR}clip_ratio_high", values[f"{_ACTOR}clip_ratio"])
    put(config, "objective.clip_high", high)
    mode = values[f"{_ACTOR}loss_agg_mode"]
    put(config, "objective.aggregation", _MEANS.get(mode, "token_mean"))
    if mode not in _MEANS:
        yield f"objective.aggregation: {mode} is a token mean here"
    drawn, part = values["data.train_batch_size"], values[f"{_ACTOR}ppo_mini_batch_size"]
    if isinstance(drawn, int) and isinstance(part, int) and part and drawn > part:
        put(config, "objective.minibatches", drawn // part)
    estimator = values.get("algorithm.adv_estimator")
    kinds = {"grpo": "group_std", "rloo": "leave_one_out"}
    by = kinds.get(str(estimator), "group_std")
    if values.get("algorithm.norm_adv_by_std_in_grpo") is False and by == "group_std":
        by = "group_mean"
    put(config, "objective.advantages", by)
    if estimator not in kinds:
        yield f"objective.advantages: {estimator or 'gae'} is not here; a group's stands there"


def _lengths(config: dict[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    every = values.get("trainer.test_freq")
    if isinstance(every, int) and every > 0:
        config["heldout_every"] = min(every, 10)
    if "max_steps" not in config:
        epochs = values.get("trainer.total_epochs", 30)
        yield f"max_steps: verl makes {epochs} epochs; write rows / tasks_per_step x {epochs}"
    yield "micro_batch: counted for one device, as in verl"


def _judged(config: dict[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    module, name = (values.get(f"custom_reward_function.{part}") for part in ("path", "name"))
    if module:
        config["verifier"] = f"{Path(str(module)).stem}:{name or 'compute_score'}"
        yield (
            "verifier: verl calls compute_score(data_source, solution_str, ground_truth, …), a "
            "reward function here takes TRL's arguments (docs/verifiers.md)"
        )
    else:
        yield (
            "verifier: verl chooses one by the row's data_source; name one (docs/verifiers.md), or "
            "a column with verifier_field"
        )
