"""LoRA and DoRA adapters (arXiv 2106.09685, 2402.09353) through PEFT.

They start from zero or from a folder; what is saved is a plain PEFT folder. Knows no training.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import (
    LoraConfig,
    PeftConfig,
    PeftModel,
    TaskType,
    get_peft_model,
    set_peft_model_state_dict,
)
from peft.tuners.lora import LoraLayer, ParamWrapper
from peft.tuners.tuners_utils import _check_lora_target_modules_mamba
from peft.utils import load_peft_weights
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

from engine.contract.errors import RLLoopError, UnfitError

WEIGHTS = "adapter_model.safetensors"
LITTLE_REACH = 0.9
"""Share of a model below which a warning says what an adapter leaves out."""
_NAMED = 3
"""Tensors of a long list that are written out."""


class AdapterError(UnfitError):
    """A PEFT folder that does not fit its base: what is wrong, without a remedy."""


# --- what an adapter can reach ---


class Targets(NamedTuple):
    """Full names, as PEFT takes them."""

    modules: list[str]
    """Linear layers, those that GPT-2 calls Conv1D among them."""
    parameters: list[str]
    """Stacks of matrices, such as the experts of one layer; and linear layers that PEFT reaches
    by their weight alone."""


def targets(model: Any, *, within: str = "", dora: bool = False, stacks: bool = True) -> Targets:
    """Every linear layer but the head, and every stack of matrices, in modules whose name matches
    `within`.

    Without `stacks`, and with `dora`, which PEFT has for linear layers alone, fewer of them. A
    router of a mixture of experts is no linear layer, and stays as it is: to move it would change
    which experts answer.
    """
    head = model.get_output_embeddings()
    found = Targets([], [])
    for name, module in model.named_modules():
        if module is head or not re.match(within, name):
            continue
        if isinstance(module, nn.Linear | Conv1D):
            if _is_read_past_an_adapter(model, name):
                continue
            if not _stands_for_experts(model, name):
                found.modules.append(name)
            elif stacks and not dora:
                found.parameters.append(f"{name}.weight")
        elif stacks and not dora and not isinstance(module, _CONVOLUTIONS):
            found.parameters.extend(
                f"{name}.{own}"
                for own, parameter in module.named_parameters(recurse=False)
                if parameter.dim() == 3 and min(parameter.shape) > 1
            )
    return found


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _is_read_past_an_adapter(model: Any, name: str) -> bool:
    """State-space layers read the bare weights of some of their linear layers: an adapter there
    would do nothing until it is merged. PEFT knows some of them.
    """
    parent, _, own = name.rpartition(".")
    try:
        _check_lora_target_modules_mamba(LoraConfig(), model, own)
    except ValueError:
        return True
    return own == "dt_proj" and hasattr(model.get_submodule(parent), "A_log")


def _stands_for_experts(model: Any, name: str) -> bool:
    """Whether PEFT takes a layer's name for that of an expert of an older Transformers, and would
    adapt the stacks of today in place of the layer: `down_proj` of a dense layer beside them.
    """
    config = LoraConfig(target_modules=[name])
    try:
        convert_peft_config_for_transformers(config, model, conversions=None)
    except ValueError:  # it knows the name, and misses another one beside it
        return True
    return not config.target_modules


@dataclass(frozen=True)
class Coverage:
    """How much of a model an adapter reaches."""

    share: float
    """Of the weights in matrices; embeddings and head are left out."""
    missed: str | None
    """The largest tensor without an adapter; None where every one has one."""

    def as_dict(self) -> dict[str, Any]:
        """For the run card."""
        return {"share": round(self.share, 4), "missed": self.missed}

    def __str__(self) -> str:
        # Never rounded up to all of it.
        reached = f"{int(self.share * 1000) / 10:g} % of the weights in matrices"
        missed = "" if self.missed is None else f"; not {self.missed} and the like"
        return f"{reached} (embeddings and head left out) have an adapter{missed}"


def coverage(model: Any, *, within: str = "") -> Coverage:
    """Of an adapted model, or of its modules whose name matches `within`."""
    base = model.get_base_model()
    reached = {id(_adapted_weight(module)) for module in _lora_layers(model)}
    head = base.get_output_embeddings()
    left_out = {id(module.weight) for module in base.modules() if isinstance(module, nn.Embedding)}
    left_out |= set() if head is None else {id(p) for p in head.parameters()}
    matrices = {
        name: parameter
        for name, parameter in base.named_parameters()
        if re.match(within, name)
        and parameter.dim() >= 2
        and id(parameter) not in left_out
        and "lora_" not in name
        and "bias" not in name.rpartition(".")[2]
    }
    missed = {name: p.numel() for name, p in matrices.items() if id(p) not in reached}
    whole = sum(parameter.numel() for parameter in matrices.values())
    largest = max(missed, key=missed.__getitem__) if missed else None
    return Coverage(
        share=1 - sum(missed.values()) / whole if whole else 1.0,
        missed=None if largest is None else largest.replace(".base_layer", ""),
    )


def _lora_layers(model: Any) -> Iterator[Any]:
    yield from (module for module in model.modules() if isinstance(module, LoraLayer))


def _adapted_weight(layer: Any) -> Any:
    own = layer.parameter_name if isinstance(layer, ParamWrapper) else "weight"
    return getattr(layer.get_base_layer(), own)


def reaches_stacks(model: Any) -> bool:
    """Whether some of the adapter is of bare parameters and not of linear layers."""
    return any(isinstance(layer, ParamWrapper) for layer in _lora_layers(model))


# --- to put one on ---


def attach_zero(
    model: Any,
    *,
    rank: int,
    alpha: int,
    seed: int,
    base: str | None = None,
    dora: bool = False,
    within: str = "",
    stacks: bool = True,
) -> Any:
    """A new adapter that changes nothing yet: B is 0, A random by seed. Freezes the base.

    With `dora` each output's magnitude trains beside its direction (arXiv 2402.09353). `base`: the
    name that is written down for it, by default what the model calls itself. `within`, `stacks`: as
    `targets` has them. Raises ValueError where it finds nothing.
    """
    found = targets(model, within=within, dora=dora, stacks=stacks)
    if not any(found):
        raise ValueError("the model has no linear layer that an adapter can reach")
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        use_dora=dora,
        target_modules=found.modules,
        target_parameters=found.parameters or None,
        fan_in_fan_out=all(isinstance(model.get_submodule(n), Conv1D) for n in found.modules),
        task_type=TaskType.CAUSAL_LM,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _put_on(model, config, base)


def _put_on(model: Any, config: LoraConfig, base: str | None) -> Any:
    """PEFT writes down what the model calls itself; the embedded base has no such name."""
    config.base_model_name_or_path = None
    with without_deprecations():
        adapted_model = get_peft_model(model, config)
    if base is not None:
        config.base_model_name_or_path = base
    return adapted_model.eval()


_UNFIT = (OSError, ValueError, LookupError, RuntimeError, TypeError, SafetensorError)
"""What PEFT was seen to raise for folders that do not fit."""


def attach(model: Any, folder: str | Path) -> Any:
    """The model with the adapter of a PEFT folder, trainable. Raises AdapterError.

    PEFT alone goes on where tensors of the folder belong to no layer, and where layers find none.
    """
    try:
        config = PeftConfig.from_pretrained(str(folder))
        if not isinstance(config, LoraConfig):
            raise AdapterError(f"is a {config.peft_type} adapter, and no LoRA or DoRA")
        config.inference_mode = False
        if next(model.parameters()).is_meta:
            config.init_lora_weights = False  # some compute it from weights, which are not there
        adapted_model = _put_on(model, config, config.base_model_name_or_path)
        _take(adapted_model, load_peft_weights(str(folder), device="cpu"))
    except _UNFIT as error:
        raise AdapterError(f"does not fit the base: {_reason(error)}") from error
    return adapted_model


def _take(model: Any, weights: dict[str, torch.Tensor]) -> None:
    """Raises AdapterError unless there is a tensor for each layer and a layer for each tensor."""
    on_meta = next(model.parameters()).is_meta
    loaded: Any = set_peft_model_state_dict(model, weights, low_cpu_mem_usage=on_meta)
    unexpected = [key.replace(".default", "") for key in loaded.unexpected_keys]
    missing = [key.replace(".default", "") for key in loaded.missing_keys if "lora_" in key]
    problems = []
    if unexpected:
        problems.append(f"no layer for {len(unexpected)} of its tensors ({_first(unexpected)})")
    if missing:
        problems.append(f"no tensor for {len(missing)} that the base asks for ({_first(missing)})")
    if problems:
        raise AdapterError(f"does not fit the base: {', and '.join(problems)}")


def _reason(error: Exception) -> str:
    """In one line; torch has a heading above the tensors that do not fit."""
    lines = [line.strip() for line in str(error).splitlines()]
    found = lines[1:2] if lines and lines[0].startswith("Error(s) in loading") else lines[:1]
    return next(iter(found), type(error).__name__)


def _first(names: list[str]) -> str:
    shown = sorted(names)[:_NAMED]
    return ", ".join(shown) + (", …" if len(names) > _NAMED else "")


def attach_folder(model: Any, folder: str) -> Any:
    """The adapter of a PEFT folder, trainable; rank and alpha are the folder's.

    Raises RLLoopError when it does not fit this base.
    """
    try:
        return attach(model, folder)
    except AdapterError as error:
        remedy = "name a PEFT adapter trained on the same base"
        raise RLLoopError.of("adapter_init", folder, str(error), remedy) from error


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
    try:
        _take(model, load_file(folder / WEIGHTS))
    except (AdapterError, *_UNFIT) as error:
        reason = _reason(error)
        raise RLLoopError.of(
            "lora_rank",
            None,
            f"the checkpoint's adapter is another one: {reason}",
            "enqueue a new run",
        ) from error


def merged(model: Any, folder: Path) -> Any:
    """The model with the adapter of a PEFT folder in its own weights. Raises AdapterError."""
    return attach(model, folder).merge_and_unload()
