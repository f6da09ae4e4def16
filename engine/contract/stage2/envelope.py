"""The memory envelope of a stage-2 run: one process that decodes rollouts and trains in turns.

Channel A passes through the model `n_softctx_iter` times before it goes back, and keeps all of
them unless each is detached. What a model is made of stands in `engine.contract.envelope`.
"""

from __future__ import annotations

from pathlib import Path

from engine.contract.envelope import (
    ADAM_MOMENTS,
    FP32,
    Checkpoints,
    Envelope,
    ModelShape,
    gigabytes,
)
from engine.contract.stage2.config import EMBEDDED_MODELS, Stage2Config
from engine.contract.stage2.precision import dtype_of
from engine.contract.stage2.rollout_matching import FEWEST_AT_ONCE, MOST_AT_ONCE

BF16 = 2
SEQUENCE_TOKENS = 4096
"""A sequence is taken to be so long where `global_max_length` says nothing."""
SAVE_STEPS = 100
"""Between two checkpoints where nobody says it."""
_LOGIT_COPIES = 3
"""Logits, their softmax and the gradient, in fp32."""

_EMBEDDED = ModelShape(
    parameters=1_800_000,
    layers=4,
    hidden=128,
    intermediate=384,
    heads=4,
    kv_heads=4,
    head_dim=32,
    vocabulary=1600,
)
_EMBEDDED_TOKENS = 256


def stage2_envelope(config: Stage2Config) -> Envelope | None:
    """What the run needs at most; None for a model that is not on this machine yet."""
    return _envelope(with_decode_batch(config))


def with_decode_batch(config: Stage2Config) -> Stage2Config:
    """The config with how many answers one decode call draws, where it leaves that open: as many
    as their keys and values have room in half of what learning takes beyond the weights, for
    rollouts and learning take turns; the other half is for reading the prompts. Of config and
    model alone: a resumed run draws in the same calls.
    """
    rollouts = config.custom.extra.rollout_matching
    if rollouts.decode_batch_size is not None or rollouts.rollout_backend != "hf":
        return config
    one = _with_batch(config, 1)
    found = _envelope(one)
    if found is None:
        return config
    room = (found.gradients + found.logits + found.activations) / 2
    each = found.kv_cache / _answers_at_once(one)
    return _with_batch(config, max(FEWEST_AT_ONCE, min(MOST_AT_ONCE, int(room / each))))


def _with_batch(config: Stage2Config, size: int) -> Stage2Config:
    rollouts = config.custom.extra.rollout_matching.model_copy(update={"decode_batch_size": size})
    extra = config.custom.extra.model_copy(update={"rollout_matching": rollouts})
    return config.model_copy(update={"custom": config.custom.model_copy(update={"extra": extra})})


def _envelope(config: Stage2Config) -> Envelope | None:
    path = config.model.path
    if path is None:
        return None
    embedded = path in EMBEDDED_MODELS
    shape = _EMBEDDED if embedded else ModelShape.of_folder(Path(path))
    if shape is None:
        return None
    width = BF16 if dtype_of(config) in {"bfloat16", "float16"} else FP32
    full = config.model.tuning == "full"
    trained = shape.parameters if full else shape.lora_parameters(config.model.lora_rank)
    trained_width = width if full else FP32
    tokens, passes = tokens_at_once(config), _passes(config)
    rollouts = config.custom.extra.rollout_matching
    prompt = _EMBEDDED_TOKENS if embedded else SEQUENCE_TOKENS
    decoded = _answers_at_once(config) * (rollouts.max_new_tokens + prompt)
    return Envelope(
        weights=gigabytes(shape.parameters * width),
        gradients=gigabytes(trained * trained_width),
        optimizer=gigabytes(trained * trained_width * ADAM_MOMENTS),
        proof=gigabytes(_before_training(config, shape, trained, width)),
        kv_cache=0.0 if config.serves else gigabytes(shape.kv_bytes(decoded, width)),
        serving=_serving_gb(config, shape, prompt, width) if config.serves else 0.0,
        logits=gigabytes(tokens * shape.vocabulary * FP32 * _LOGIT_COPIES * passes),
        activations=gigabytes(
            passes
            * shape.activation_bytes(
                tokens, checkpointing=_checkpoints_gradients(config), width=width
            )
        ),
    ).of_ranks(config.ranks)


def _before_training(config: Stage2Config, shape: ModelShape, trained: int, width: int) -> int:
    """Bytes beside the weights: the first checkpoint read again, an adapter's on the base that is
    there or on the one that its run keeps; or a warm-up, which trains the whole model.
    """
    if config.model.tuning == "full":
        return shape.parameters * width  # a warm-up needs what training needs
    if config.warmup is None:
        return trained * width
    tokens = tokens_at_once(config)
    logits = tokens * shape.vocabulary * FP32 * _LOGIT_COPIES
    activations = shape.activation_bytes(tokens, checkpointing=False, width=width)
    return shape.parameters * width * (1 + ADAM_MOMENTS) + logits + activations


def stage2_checkpoints(config: Stage2Config) -> Checkpoints | None:
    """Trained weights as they are stored, and AdamW's two moments of each.

    Beside the newest stand step 0, the selected one, and the one that is being written.
    """
    path = config.model.path
    shape = _EMBEDDED if path in EMBEDDED_MODELS else ModelShape.of_folder(Path(path or ""))
    if shape is None:
        return None
    full = config.model.tuning == "full"
    trained = shape.parameters if full else shape.lora_parameters(config.model.lora_rank)
    width = BF16 if full and dtype_of(config) in {"bfloat16", "float16"} else FP32
    each = gigabytes(trained * width * (1 + ADAM_MOMENTS))
    kept = config.keep_checkpoints + 3
    given = config.training.passed_on
    steps, every = given.get("max_steps"), given.get("save_steps", SAVE_STEPS)
    if not isinstance(steps, int) or steps < 1 or not isinstance(every, int):
        return Checkpoints(each, kept, kept)  # by epochs, or by shares of the run
    return Checkpoints(each, kept, steps // every + 2)


def _serving_gb(config: Stage2Config, shape: ModelShape, prompt: int, width: int) -> float:
    """Of the servers that the run starts, each with a copy of its own. A share of a GPU is memory
    of the device, which no config tells the size of.
    """
    rollouts = config.custom.extra.rollout_matching
    window = rollouts.vllm.max_model_len or prompt + rollouts.max_new_tokens
    servers = 0 if rollouts.vllm.external else rollouts.vllm.launch.replicas
    return servers * shape.served_gb(config.answers_at_once(config.ranks) * window, width)


def tokens_at_once(config: Stage2Config) -> int:
    """Most tokens of one forward and backward pass."""
    default = _EMBEDDED_TOKENS if config.model.path in EMBEDDED_MODELS else SEQUENCE_TOKENS
    longest = config.global_max_length or default
    if config.training.packing:
        return longest
    return config.training.per_device_train_batch_size * min(longest, default)


def _answers_at_once(config: Stage2Config) -> int:
    """Answers of the largest decode call: an evaluation may have larger ones than training."""
    data = config.data
    if data.val_jsonl is None and data.report_jsonl is None:
        return config.custom.extra.rollout_matching.answers_a_call
    return config.eval_decode_batch_size


def _passes(config: Stage2Config) -> int:
    """Forward passes whose activations one backward pass needs."""
    ab = config.stage2_ab
    return ab.n_softctx_iter if ab is not None and ab.softctx_grad_mode == "unroll" else 1


def _checkpoints_gradients(config: Stage2Config) -> bool:
    """Transformers reads the older name where the newer one is not given."""
    given = config.training.passed_on
    return bool(given.get("activation_checkpointing", given.get("gradient_checkpointing")))
