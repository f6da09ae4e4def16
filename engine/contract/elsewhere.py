"""Names that settings have elsewhere: in TRL, verl, Transformers and the APIs of model servers.

Whoever writes one is told the name here. Only names that a config has: a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_NAMES = """
lr, training.learning_rate: learning_rate actor_lr policy_lr init_lr lr_actor lr base_lr
temp, custom.extra.rollout_matching.decoding.temperature: temperature sampling_temperature
model.path: base
heldout_temp: eval_temperature val_temperature
kl_coef: beta kl_beta kl_loss_coef kl_penalty kl_coeff init_kl_coef kl_ctl
group_k: num_generations n num_samples group_size rollout_n num_return_sequences n_samples
group_k: samples_per_prompt generations_per_prompt
base, model.path: model model_name model_name_or_path pretrained_model_name_or_path model_path
base, model.path: base_model model_id hf_model checkpoint path pretrain
max_new_tokens, custom.extra.rollout_matching.max_new_tokens: max_completion_length max_tokens
max_new_tokens, custom.extra.rollout_matching.max_new_tokens: response_length max_response_length
max_new_tokens, custom.extra.rollout_matching.max_new_tokens: max_completion_tokens max_length
tasks_per_step, training.effective_batch_size: batch_size train_batch_size prompts_per_step
tasks_per_step, training.effective_batch_size: rollout_batch_size generation_batch_size
tasks_per_step, training.effective_batch_size: global_batch_size
micro_batch, training.per_device_train_batch_size: per_device_train_batch_size micro_batch_size
micro_batch, training.per_device_train_batch_size: ppo_micro_batch_size_per_gpu mini_batch_size
grad_clip, training.max_grad_norm: gradient_clip gradient_clip_val max_grad_norm clip_grad
grad_clip, training.max_grad_norm: max_norm gradient_clipping
max_steps, training.max_steps: steps num_steps total_steps train_steps total_training_steps
max_steps, training.max_steps: num_train_steps max_iters iterations
training.num_train_epochs: epochs num_epochs total_epochs num_train_epochs
objective.epochs: num_iterations ppo_epochs
objective.minibatches: num_minibatches num_mini_batches steps_per_generation
objective.loss: loss_type algorithm adv_estimator policy_loss loss
objective.advantages: scale_rewards advantage_estimator
objective.clip_low: epsilon clip_ratio cliprange clip_ratio_low clip_range
objective.clip_high: epsilon_high clip_ratio_high
objective.truncated: mask_truncated_completions
buffer.max_staleness: staleness max_off_policy off_policy_steps
save_every, training.save_steps: save_steps save_freq save_interval checkpoint_every
keep_checkpoints: save_total_limit max_checkpoints
heldout_every, training.eval_steps: eval_steps eval_every test_freq eval_interval eval_freq
heldout_frac: test_size val_split eval_split validation_split
seed, training.seed: random_seed random_state manual_seed
data.train_jsonl, data.source: dataset dataset_name train_files train_file data_path dataset_path
data.train_jsonl, data.source: train_dataset data_file
data.val_jsonl: val_files val_file eval_dataset validation_file
data.prompt_field: prompt_key prompt_column question_field input_key
data.answer_field: answer_key answer_column label_key gold_field solution_key
data.limit, data.train_limit: max_samples max_train_samples num_examples
lora_rank, model.lora_rank: lora_r r rank peft_r
lora_alpha, model.lora_alpha: alpha
tuning, model.tuning: use_peft peft use_lora finetuning_type peft_type train_type
adapter_init: adapter adapter_path lora_path adapter_name_or_path peft_model_id
verifier: reward reward_func reward_funcs reward_fn reward_function reward_model
rollout_backend: use_vllm rollout_engine inference_backend
optim.warmup_steps, training.warmup_steps: warmup_steps num_warmup_steps lr_warmup_steps
optim.schedule, training.lr_scheduler_type: lr_scheduler_type scheduler lr_scheduler lr_schedule
optim.weight_decay, training.weight_decay: wd
optim.adam_beta1, training.adam_beta1: beta1
optim.adam_beta2, training.adam_beta2: beta2
optim.adam_eps, training.adam_epsilon: adam_epsilon eps
optim.precision, model.dtype: bf16 dtype torch_dtype mixed_precision
optim.gradient_checkpointing, training.gradient_checkpointing: enable_gradient_checkpointing
optim.gradient_checkpointing, training.gradient_checkpointing: activation_checkpointing
sampling.repetition_penalty: frequency_penalty presence_penalty
prompting.system_prompt: system system_message
prompting.template_variables: chat_template_kwargs
prompting.skip_chat_template: apply_chat_template use_chat_template
success_threshold: reward_threshold
threads: num_threads omp_num_threads
global_max_length: max_seq_length max_seq_len cutoff_len
"""


def _table() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for line in _NAMES.strip().splitlines():
        here, _, there = line.partition(": ")
        for name in there.split():
            found.setdefault(name, []).extend(here.split(", "))
    return found


ELSEWHERE = _table()
"""Name elsewhere, in lower case → the settings that mean the same, the first that a config has."""


def name_here(word: str, settings: Sequence[str]) -> str | None:
    """The setting that means what a name means elsewhere, or is that name written otherwise.

    `settings`: those of the config by dotted name. The same name in another section counts too.

    >>> name_here("Learning-Rate", ["lr", "temp"]), name_here("top_p", ["lr", "sampling.top_p"])
    ('lr', 'sampling.top_p')
    """
    plain = word.lower().replace("-", "_")
    known = set(settings)
    for setting in settings:
        if setting.lower() == plain:
            return setting
    for setting in ELSEWHERE.get(plain, ()):
        for name in (setting, setting.rpartition(".")[2]):  # of one section alone, without it
            if name in known and name != word:
                return name
    alike = (setting for setting in settings if setting.rpartition(".")[2].lower() == plain)
    return next(alike, None)
