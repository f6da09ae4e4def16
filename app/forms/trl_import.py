"""A GRPO run of TRL as a config of `rl_run`, with a sentence for whatever could not be carried.

TRL's defaults count where a file is silent, as `GRPOConfig` of TRL 0.29 has them; its `dapo` is a
token mean, with neither refill nor overlong penalty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.forms.trl_values import Said
from engine.contract.documents import dump_yaml
from engine.contract.errors import ConfigError, ConfigProblem

_DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 1e-6,
    "num_generations": 8,
    "max_completion_length": 256,
    "temperature": 1.0,
    "beta": 0.0,
    "epsilon": 0.2,
    "loss_type": "dapo",
    "scale_rewards": "group",
    "num_iterations": 1,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "lr_scheduler_type": "linear",
    "bf16": True,
    "gradient_checkpointing": True,
    "seed": 42,
    "importance_sampling_level": "token",
}
_RENAMED = {
    "learning_rate": "lr",
    "beta": "kl_coef",
    "num_generations": "group_k",
    "max_completion_length": "max_new_tokens",
    "temperature": "temp",
    "max_grad_norm": "grad_clip",
    "per_device_train_batch_size": "micro_batch",
    "seed": "seed",
    "lora_r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "min_p": "sampling.min_p",
    "repetition_penalty": "sampling.repetition_penalty",
    "num_iterations": "objective.epochs",
    "weight_decay": "optim.weight_decay",
    "adam_epsilon": "optim.adam_eps",
    "warmup_steps": "optim.warmup_steps",
    "gradient_checkpointing": "optim.gradient_checkpointing",
    "chat_template_kwargs": "prompting.template_variables",
    "save_total_limit": "keep_checkpoints",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_mode": "vllm.mode",
}
_READ = frozenset(
    {
        *("model", "model_name_or_path", "dataset_name", "dataset_train_split", "max_steps"),
        *("num_train_epochs", "gradient_accumulation_steps", "steps_per_generation"),
        *("generation_batch_size", "epsilon", "epsilon_high", "loss_type", "scale_rewards"),
        *("importance_sampling_level", "mask_truncated_completions", "lr_scheduler_type"),
        *("warmup_ratio", "bf16", "fp16", "use_vllm", "use_peft", "use_dora", "eval_steps"),
        *("save_steps", "reward_weights", "max_prompt_length", "max_seq_length"),
    }
)
"""What is translated by a rule of its own."""
_NEEDLESS = frozenset(
    {
        *("output_dir", "run_name", "report_to", "logging_steps", "log_completions", "push_to_hub"),
        *("hub_model_id", "do_eval", "do_train", "eval_strategy", "save_strategy", "optim"),
        *("remove_unused_columns", "logging_strategy", "overwrite_output_dir", "task_type"),
        *("logging_first_step", "num_completions_to_print", "disable_tqdm", "shuffle_dataset"),
        *(
            "target_modules",
            "lora_target_modules",
            "bias",
            "lora_dropout",
            "use_cache",
            "torch_dtype",
        ),
        *("dtype", "attn_implementation", "trust_remote_code", "random_state", "dataset_config"),
        *("use_gradient_checkpointing", "load_in_4bit", "fast_inference", "max_lora_rank"),
        *("gradient_checkpointing_kwargs", "ddp_find_unused_parameters", "save_only_model"),
    }
)
"""What a run here does in another way, or has no need of; told in one line."""
_SCHEDULES = {"constant", "linear", "cosine"}


class Imported(NamedTuple):
    """What a run of TRL is here."""

    config: dict[str, Any]
    notes: list[str]
    """What was not carried, or is meant otherwise, a sentence each."""

    @property
    def text(self) -> str:
        """As a YAML file, the notes in front."""
        head = "".join(f"# - {note}\n" for note in self.notes)
        said = f"# Read from another trainer's settings. Look at these:\n{head}\n" if head else ""
        return said + dump_yaml(self.config)


def imported(said: Said) -> Imported:
    """Translate what was read."""
    made = _Translation(said)
    notes = list(made.notes())
    return Imported(made.config, notes)


class _Translation:
    def __init__(self, said: Said) -> None:
        self.config: dict[str, Any] = {}
        self._said = said
        self._values = {**_DEFAULTS, **said.values}
        if self._values.get("top_k") == -1:
            self._values["top_k"] = 0  # off, as vLLM writes it

    def notes(self) -> Iterator[str]:
        """Fills the config on the way."""
        yield from self._model()
        yield from self._rows()
        for name, here in _RENAMED.items():
            if self._values.get(name) is not None:
                self._put(here, self._values[name])
        yield from self._batches()
        yield from self._loss()
        yield from self._optimizer()
        yield from self._rewards()
        yield from self._rest()

    def _model(self) -> Iterator[str]:
        model = self._values.get("model") or self._values.get("model_name_or_path")
        if isinstance(model, str):
            self._put("base", model)
        else:
            yield "base: the model could not be read; write its folder or hub id"
        adapter = self._said.adapter or self._values.get("use_peft")
        tuning = "dora" if adapter and self._values.get("use_dora") else "lora"
        self._put("tuning", tuning if adapter else "full")
        if self._values.get("use_vllm"):
            self._put("rollout_backend", "vllm")

    def _rows(self) -> Iterator[str]:
        source = self._values.get("dataset_name")
        if isinstance(source, str):
            self._put("data.source", source)
            if split := self._values.get("dataset_train_split"):
                self._put("data.split", str(split))
            yield (
                f"data.source: {source} is a hub name; nothing is downloaded here: write the path "
                "of its files (hf download --repo-type dataset)"
            )
        else:
            yield "data.source: the rows could not be read; write the path of a file"
        yield (
            "prompting.skip_chat_template: TRL applies the chat template where prompts are "
            "messages; write false then"
        )

    def _batches(self) -> Iterator[str]:
        values = self._values
        passes = self._whole("gradient_accumulation_steps")
        at_once = self._whole("per_device_train_batch_size")
        calls = (
            self._whole("steps_per_generation") if values.get("steps_per_generation") else passes
        )
        drawn = at_once * calls
        if values.get("generation_batch_size"):
            drawn = self._whole("generation_batch_size")
        k = self._whole("num_generations")
        self._put("tasks_per_step", max(1, drawn // k))
        if drawn % k:
            yield f"tasks_per_step: {drawn} completions a step are no whole groups of {k}"
        updates = max(1, drawn // (at_once * passes))
        if updates > 1:
            self._put("objective.minibatches", updates)
        yield "tasks_per_step: counted for one process; times their number where TRL ran on several"
        steps = values.get("max_steps")
        if isinstance(steps, int) and steps > 0:
            self._put("max_steps", math.ceil(steps / (updates * self._whole("num_iterations"))))
        else:
            epochs = values.get("num_train_epochs", 3)
            yield f"max_steps: TRL made {epochs} epochs; write rows / tasks_per_step x {epochs}"

    def _loss(self) -> Iterator[str]:
        values, loss = self._values, str(self._values["loss_type"])
        low = high = self._real("epsilon")
        if values.get("epsilon_high") is not None:
            high = self._real("epsilon_high")
        if values["importance_sampling_level"] == "sequence":
            loss = "gspo"
        if loss not in {"grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo"}:
            yield f"objective.loss: there is no {loss} here; grpo stands in its place"
            loss = "grpo"
        if loss == "bnpo":
            yield "objective.loss: bnpo's mean over a micro-batch is over the step's tokens here"
        self._put("objective.loss", "dapo" if loss == "bnpo" else loss)
        if loss in {"dapo", "bnpo"}:
            self._put("objective.zero_signal", "keep")
            self._put("objective.overlong_buffer", 0)
        if loss == "cispo":
            if high > 1:
                self._put("objective.clip_high", high - 1)
            else:
                yield f"objective.clip_high: TRL caps a token's weight at {high}; here it is over 1"
        else:
            self._put("objective.clip_low", low)
            self._put("objective.clip_high", high)
        yield from self._advantages()
        if values.get("mask_truncated_completions"):
            self._put("objective.truncated", "mask")

    def _advantages(self) -> Iterator[str]:
        scaled = self._values["scale_rewards"]
        by = {True: "group_std", "group": "group_std", False: "group_mean", "none": "group_mean"}
        self._put("objective.advantages", by.get(scaled, "group_std"))
        if scaled not in by:
            yield f"objective.advantages: scale_rewards={scaled!r} is a group's deviation here"

    def _optimizer(self) -> Iterator[str]:
        values = self._values
        self._put(
            "optim.precision", "bf16" if values["bf16"] and not values.get("fp16") else "fp32"
        )
        if values.get("fp16"):
            yield "optim.precision: there is no fp16 here; fp32 stands in its place, bf16 is faster"
        schedule = str(values["lr_scheduler_type"])
        if schedule in _SCHEDULES:
            self._put("optim.schedule", schedule)
        else:
            yield f"optim.schedule: {schedule} is constant here; linear and cosine are known"
        ratio = values.get("warmup_ratio")
        if ratio and "max_steps" in self.config:
            self._put(
                "optim.warmup_steps", round(self._real("warmup_ratio") * self.config["max_steps"])
            )
        every = values.get("eval_steps")
        if isinstance(every, int) and every:
            self._put("heldout_every", min(every, 10))

    def _rewards(self) -> Iterator[str]:
        functions = [name for name in self._said.rewards if ":" in name]
        others = [name for name in self._said.rewards if ":" not in name]
        weights = self._values.get("reward_weights") or [1.0] * len(self._said.rewards)
        if len(self._said.rewards) == 1 and functions:
            self._put("verifier", functions[0])
        elif functions and not others and len(weights) == len(functions):
            parts = zip(functions, weights, strict=True)
            self.config["rewards"] = [{"function": one, "weight": float(w)} for one, w in parts]
        if functions:
            modules = ",".join(dict.fromkeys(one.partition(":")[0] for one in functions))
            yield f"verifier: reward functions must be allowed: NIGHTLANE_REWARD_MODULES={modules}"
        if others or not self._said.rewards:
            named = f"{', '.join(others)} could not be carried; " if others else ""
            yield f"verifier: {named}name a verifier (docs/verifiers.md) or module:function"

    def _rest(self) -> Iterator[str]:
        names = [*self._said.values]
        needless = sorted(name for name in names if name in _NEEDLESS)
        if needless:
            yield f"done otherwise here, or not needed: {', '.join(needless)}"
        known = {*_READ, *_RENAMED, *_NEEDLESS}
        for name in sorted(set(names) - known):
            yield f"not carried: {name}={self._said.values[name]!r}"
        for name in self._said.unread:
            yield f"computed in the script, so not carried: {name}"

    def _whole(self, name: str) -> int:
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _wrong(name, value, "is no whole number from 1 on")
        return value

    def _real(self, name: str) -> float:
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, value, "is no number")
        return float(value)

    def _put(self, dotted: str, value: Any) -> None:
        put(self.config, dotted, value)


def put(config: dict[str, Any], dotted: str, value: Any) -> None:
    """Into the sections that a dotted name goes through."""
    *path, last = dotted.split(".")
    for name in path:
        config = config.setdefault(name, {})
    config[last] = value


def _wrong(name: str, value: Any, problem: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, value, problem, "correct it in the file of TRL")])
