"""What Transformers' `TrainingArguments` knows and takes, for a config that imports no torch.

The class itself checks little: a text for a number is a crash hours later, at the step that counts
with it. A test compares names, types and choices with the installed class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.problems import nearest
from engine.contract.stage2.detection import BEST_BY

_NAMES = """
accelerator_config activation_checkpointing activation_checkpointing_kwargs adam_beta1
adam_beta2 adam_epsilon auto_find_batch_size average_tokens_across_devices
batch_eval_metrics bf16 bf16_full_eval data_seed dataloader_drop_last dataloader_in_order
dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers
ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed
disable_tqdm do_eval do_predict do_train enable_jit_checkpoint eval_accumulation_steps
eval_delay eval_do_concat_batches eval_on_start eval_steps eval_strategy
eval_use_gather_object fp16 fp16_full_eval fsdp fsdp_config full_determinism
gradient_accumulation_steps gradient_checkpointing gradient_checkpointing_kwargs
greater_is_better hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy
hub_token ignore_data_skip include_for_metrics include_num_input_tokens_seen label_names
label_smoothing_factor learning_rate length_column_name liger_kernel_config
load_best_model_at_end local_rank log_level log_level_replica log_on_each_node
logging_first_step logging_nan_inf_filter logging_steps logging_strategy
lr_scheduler_kwargs lr_scheduler_type max_grad_norm max_steps metric_for_best_model
neftune_noise_alpha num_train_epochs optim optim_args optim_target_modules output_dir
parallelism_config per_device_eval_batch_size per_device_train_batch_size
prediction_loss_only project push_to_hub remove_unused_columns report_to
restore_callback_states_from_checkpoint resume_from_checkpoint run_name save_on_each_node
save_only_model save_steps save_strategy save_total_limit seed skip_memory_metrics tf32
torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps
trackio_bucket_id trackio_space_id trackio_static_space_id train_sampling_strategy
use_cache use_cpu use_liger_kernel warmup_steps weight_decay
"""
TRAINING_ARGUMENTS = frozenset(_NAMES.split())


class Numbers(NamedTuple):
    """Which numbers an argument takes."""

    least: float = 0.0
    below: float = math.inf
    whole: bool = False
    steps: bool = False
    """Whole from 1 on; below it a share of the run, and never 0."""


_FLAGS = """
average_tokens_across_devices bf16 fp16 bf16_full_eval fp16_full_eval torch_compile
use_liger_kernel use_cache auto_find_batch_size logging_first_step log_on_each_node
logging_nan_inf_filter prediction_loss_only eval_on_start eval_do_concat_batches
eval_use_gather_object batch_eval_metrics save_only_model save_on_each_node
enable_jit_checkpoint push_to_hub hub_always_push load_best_model_at_end ignore_data_skip
restore_callback_states_from_checkpoint full_determinism use_cpu dataloader_drop_last
dataloader_pin_memory dataloader_persistent_workers dataloader_in_order
remove_unused_columns skip_memory_metrics do_train do_eval do_predict tf32
activation_checkpointing gradient_checkpointing disable_tqdm hub_private_repo
greater_is_better ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph
"""
FLAGS = frozenset(_FLAGS.split())
_MANY = 2.0**31
_COUNT = Numbers(least=1, below=_MANY, whole=True)
NUMBERS: Mapping[str, Numbers] = {
    "max_steps": Numbers(least=-1, below=_MANY, whole=True),  # -1: as many as the epochs have
    "per_device_eval_batch_size": _COUNT,
    "dataloader_num_workers": Numbers(below=_MANY, whole=True),
    "dataloader_prefetch_factor": _COUNT,
    "data_seed": Numbers(below=_MANY, whole=True),
    "torch_empty_cache_steps": _COUNT,
    "eval_accumulation_steps": _COUNT,
    "save_total_limit": _COUNT,
    "ddp_timeout": _COUNT,
    "ddp_bucket_cap_mb": _COUNT,
    "local_rank": Numbers(least=-1, below=_MANY, whole=True),
    "num_train_epochs": Numbers(),
    "learning_rate": Numbers(),
    "warmup_steps": Numbers(),
    "weight_decay": Numbers(),
    "adam_beta1": Numbers(below=1.0),
    "adam_beta2": Numbers(below=1.0),
    "adam_epsilon": Numbers(),
    "max_grad_norm": Numbers(),
    "label_smoothing_factor": Numbers(below=1.0),
    "neftune_noise_alpha": Numbers(),
    "eval_delay": Numbers(),
    "logging_steps": Numbers(steps=True),
    "eval_steps": Numbers(steps=True),
    "save_steps": Numbers(steps=True),
}
_SCHEDULES = """
linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt
reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy
"""
_OPTIMIZERS = """
adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor
adamw_anyprecision adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad adamw_bnb_8bit
adamw_8bit ademamix_8bit lion_8bit lion_32bit paged_adamw_32bit paged_adamw_8bit
paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit paged_lion_8bit rmsprop rmsprop_bnb
rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit galore_adafactor
galore_adamw_layerwise galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo
grokadamw schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw
apollo_adamw_layerwise stable_adamw
"""
FOLLOWS_SCORE = frozenset({"reduce_lr_on_plateau", "greedy"})
"""Schedules that are told each score on the validation records."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "lr_scheduler_type": tuple(_SCHEDULES.split()),
    "optim": tuple(_OPTIMIZERS.split()),
    "train_sampling_strategy": ("random", "sequential"),
    "logging_strategy": ("no", "steps", "epoch"),
    "log_level": ("passive", "detail", "debug", "info", "warning", "error", "critical"),
    "log_level_replica": ("passive", "detail", "debug", "info", "warning", "error", "critical"),
}

DECIDED: Mapping[str, str] = {
    "output_dir": "is the run directory's; remove it",
    "resume_from_checkpoint": "is found in the run directory; remove it",
    "fp16": "is not supported; use model.dtype: bfloat16 or float32",
    "fp16_full_eval": "is not supported; remove it",
    "bf16_full_eval": "is not supported; remove it",
    "deepspeed": "is not supported; remove it",
    "fsdp": "is not supported; remove it",
    "fsdp_config": "is not supported; remove it",
    "parallelism_config": "is not supported; remove it",
    "push_to_hub": "is not supported; copy the selected checkpoint yourself",
    "auto_find_batch_size": "would change what a step learns; set per_device_train_batch_size",
    "label_smoothing_factor": "is not part of the objective; remove it",
    "neftune_noise_alpha": "would change the picture's placeholders; remove it",
    "use_liger_kernel": "would drop logits that the loss reads; remove it",
    "torch_compile": "is not supported; remove it",
    "save_total_limit": "is keep_checkpoints here; set that",
    "load_best_model_at_end": "is done by `selected`; remove it",
    "save_only_model": "would leave a run that cannot be resumed; remove it",
    "ignore_data_skip": "would train on the same records again after a resume; remove it",
    "disable_tqdm": "is set by the engine; remove it",
    "metric_for_best_model": "is neither rollout_f1 nor detection_map; write one of them",
    "greater_is_better": "follows from metric_for_best_model; remove it",
    "eval_strategy": "follows from data.val_jsonl and eval_steps; set eval_steps",
    "eval_on_start": "is done where step 0 has no score; remove it",
    "save_strategy": "is steps; set save_steps",
    "enable_jit_checkpoint": "is done by the engine, whoever asks it to stop; remove it",
    "restore_callback_states_from_checkpoint": "is done by the engine; remove it",
    "accelerator_config": "would change what a step learns; remove it",
    "use_cpu": "follows from the machine; remove it",
    "local_rank": "comes from torchrun; remove it",
    "ddp_backend": "follows from the machine; remove it",
    "hub_token": "is a secret, and nothing is pushed; remove it",
    "do_eval": "follows from data.val_jsonl; remove it",
    "do_train": "is what this kind does; remove it",
    "do_predict": "is not supported; remove it",
    "average_tokens_across_devices": "is done by the engine, over samples; remove it",
    "batch_eval_metrics": "is not read by the evaluation by rollouts; remove it",
    "eval_accumulation_steps": "is not read by the evaluation by rollouts; remove it",
    "eval_do_concat_batches": "is not read by the evaluation by rollouts; remove it",
    "eval_use_gather_object": "is not read by the evaluation by rollouts; remove it",
    "include_for_metrics": "is not read by the evaluation by rollouts; remove it",
    "label_names": "is not read: samples have objects, no labels; remove it",
    "prediction_loss_only": "is not read by the evaluation by rollouts; remove it",
    "include_num_input_tokens_seen": "is not counted: samples are raw; remove it",
    "length_column_name": "is not read: samples are raw; remove it",
    "logging_nan_inf_filter": "is not read: a loss that is no number ends the run; remove it",
    "ddp_broadcast_buffers": "is not read: gradients are added up by the engine; remove it",
    "ddp_bucket_cap_mb": "is not read: gradients are added up by the engine; remove it",
    "ddp_find_unused_parameters": "is not read: gradients are added up by the engine; remove it",
    "ddp_static_graph": "is not read: gradients are added up by the engine; remove it",
    "hub_always_push": "is not read: nothing is pushed; remove it",
    "hub_model_id": "is not read: nothing is pushed; remove it",
    "hub_private_repo": "is not read: nothing is pushed; remove it",
    "hub_revision": "is not read: nothing is pushed; remove it",
    "hub_strategy": "is not read: nothing is pushed; remove it",
    "liger_kernel_config": "is not read: use_liger_kernel is not supported; remove it",
    "torch_compile_backend": "would compile the model, which is not supported; remove it",
    "torch_compile_mode": "would compile the model, which is not supported; remove it",
    "torch_empty_cache_steps": "is not read: a step is learnt by the engine; remove it",
    "use_cache": "is the engine's: rollouts have a cache, training has none; remove it",
}
"""Arguments that the trainers decide themselves, cannot honour, or would not read: why, and what to
do."""

_SO_ANYWAY: Mapping[str, tuple[Any, ...]] = {
    "average_tokens_across_devices": (True, False),  # the same for one sample as for many
    "disable_tqdm": (True,),
    "do_train": (True,),
    "eval_do_concat_batches": (True,),
    "eval_on_start": (True,),
    "greater_is_better": (True,),
    "hub_strategy": ("every_save",),
    "include_num_input_tokens_seen": ("no", False),
    "label_smoothing_factor": (0,),
    "length_column_name": ("length",),
    "local_rank": (-1,),
    "logging_nan_inf_filter": (True,),
    "metric_for_best_model": (*BEST_BY, *(f"eval_{name}" for name in BEST_BY)),
    "neftune_noise_alpha": (0,),
    "save_strategy": ("steps",),
}
"""Values of those that say what happens in any case, Transformers' own defaults among them."""
_FALSE_IS_ANOTHER = frozenset(_SO_ANYWAY) | {"do_eval"}
"""Of the flags: all others are off, so that false may stand there."""

NEEDS: Mapping[str, str] = {
    "dataloader_persistent_workers": "dataloader_num_workers",
    "dataloader_prefetch_factor": "dataloader_num_workers",
    "dataloader_multiprocessing_context": "dataloader_num_workers",
    "run_name": "report_to",
    "project": "report_to",
    "trackio_bucket_id": "report_to",
    "trackio_space_id": "report_to",
    "trackio_static_space_id": "report_to",
}
"""Arguments that are read with another alone."""


def is_so_anyway(name: str, value: Any, *, evaluates: bool) -> bool:
    """Whether an argument of `DECIDED` says what the trainer does in any case: it may stand there.

    `evaluates`: there are validation records.

    >>> is_so_anyway("save_strategy", "steps", evaluates=True)
    True
    """
    if name == "do_eval":
        return value is evaluates
    if name == "eval_strategy":
        return bool(value == ("steps" if evaluates else "no"))
    if value is False and name in FLAGS and name not in _FALSE_IS_ANOTHER:
        return True
    return any(value == same for same in _SO_ANYWAY.get(name, ()))


def schedule_settings(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """`lr_scheduler_kwargs`, also where it is written as JSON; a score that rises is a good one.

    None where nothing is given, and for what is neither.

    >>> schedule_settings({"lr_scheduler_type": "greedy", "lr_scheduler_kwargs": '{"factor": 0.5}'})
    {'mode': 'max', 'factor': 0.5}
    """
    settings = given.get("lr_scheduler_kwargs")
    if isinstance(settings, str):
        try:
            settings = parse_json(settings)
        except UnreadableError:
            return None
    better = {"mode": "max"} if given.get("lr_scheduler_type") in FOLLOWS_SCORE else None
    if settings is None:
        return better
    return {**(better or {}), **settings} if isinstance(settings, Mapping) else None


def objection(name: str, value: Any) -> str | None:
    """`problem; remedy` for a value that the argument does not take. None stands for its default.

    >>> objection("adam_beta1", 1.5)
    'must be less than 1; use a smaller value'
    """
    if value is None:
        return None
    if name == "lr_scheduler_kwargs" and isinstance(value, str):
        read = schedule_settings({name: value})
        return "is no mapping; write one, or its JSON text" if read is None else None
    if name in FLAGS:
        return None if isinstance(value, bool) else "is no truth value; write true or false"
    if name in NUMBERS:
        return _number(NUMBERS[name], value)
    if name in CHOICES and value not in CHOICES[name]:
        return f"is not one of its values; {nearest(str(value), CHOICES[name])}"
    return None


def _number(taken: Numbers, value: Any) -> str | None:
    if isinstance(value, str):
        return "is text; write a number, without quotes"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is no number; write one"
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number; write one"
    is_whole = value == int(value)
    rules = {
        "is no whole number; write one": is_whole or not taken.whole,
        "is no number of steps; write a whole number from 1 on, or a share of the run": (
            not taken.steps or 0 < value < 1 or (value > 0 and is_whole)
        ),
        f"must be {taken.least:g} or more; use a larger value": value >= taken.least,
        f"must be less than {taken.below:g}; use a smaller value": value < taken.below,
    }
    return next((why for why, holds in rules.items() if not holds), None)
