"""LoRA and DoRA adapters (arXiv 2106.09685, 2402.09353) through PEFT.

They start from zero or from a folder; what is saved is a plain PEFT folder. Knows no training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import (
    LoraConfig,
    PeftModel,
    TaskType,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from safetensors import SafetensorError
from safetensors.torch import load_file

from engine.contract.errors import RLLoopError

WEIGHTS = "adapter_model.safetensors"


def attach_zero(
    model: Any,
    *,
    rank: int,
    alpha: int,
    seed: int,
    base: str | None = None,
    dora: bool = False,
    layers: str = "all-linear",
) -> Any:
    """A new adapter that changes nothing yet: B is 0, A random by seed. Freezes the base.

    With `dora` each output's magnitude trains beside its direction (arXiv 2402.09353). `base`: the
    name that is written down for it, by default what the model calls itself. `layers`: a pattern of
    their names. Raises ValueError where PEFT finds none of them.
    """
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        use_dora=dora,
        target_modules=layers,
        task_type=TaskType.CAUSAL_LM,
        base_model_name_or_path=base,
    )
    with torch.random.fork_rng(devices=[]), without_deprecations():
        torch.manual_seed(seed)
        adapted_model = get_peft_model(model, config)
    if base is not None:
        # PEFT writes down what the model calls itself; the embedded base has no such name.
        adapted_model.peft_config["default"].base_model_name_or_path = base
    return adapted_model.eval()


def attach_folder(model: Any, folder: str) -> Any:
    """The adapter of a PEFT folder, trainable; rank and alpha are the folder's.

    Raises RLLoopError when it does not fit this base.
    """
    try:
        with without_deprecations():
            adapted_model = PeftModel.from_pretrained(model, folder, is_trainable=True)
    except (OSError, ValueError, LookupError, RuntimeError, TypeError, SafetensorError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RLLoopError.of(
            "adapter_init",
            folder,
            f"does not fit the base: {reason}",
            "name a PEFT adapter trained on the same base",
        ) from error
    return adapted_model.eval()


@contextmanager
def without_deprecations() -> Iterator[None]:
    """PEFT 0.21 reads an attribute that transformers 5 renamed; nobody here can act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        yield


def adapted(model: Any) -> bool:
    """Whether the model is a base with an adapter."""
    return isinstance(model, PeftModel)


def save(model: Any, folder: Path) -> None:
    """`adapter_config.json` and `adapter_model.safetensors`, as PEFT reads them."""
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)


def load(model: Any, folder: Path) -> None:
    """Take over the weights that `save` wrote; parameters keep their identity."""
    state = load_file(folder / WEIGHTS)
    expected = get_peft_model_state_dict(model, save_embedding_layers=False)
    if set(state) != set(expected):
        odd = min(set(state) ^ set(expected))
        raise RLLoopError.of(
            "lora_rank", None, f"the checkpoint's adapter differs at {odd}", "enqueue a new run"
        )
    set_peft_model_state_dict(model, state)


def merged(model: Any, folder: Path) -> Any:
    """The model with the adapter of a PEFT folder in its own weights."""
    with without_deprecations():
        wrapped: Any = PeftModel.from_pretrained(model, str(folder))
    return wrapped.merge_and_unload()
