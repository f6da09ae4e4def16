"""What a full tuning loses to the precision of its weights.

bfloat16 keeps 8 bits of a number: AdamW moves a weight by about the learning rate, and a weight of
0.02 does not move by less than 6e-5. An adapter's matrices are fp32 in any case. Knows no tensor.
"""

from __future__ import annotations

from pathlib import Path

from engine.contract.documents import read_json_object
from engine.contract.errors import ConfigProblem
from engine.contract.stage2.config import EMBEDDED_MODELS, Stage2Config

UPDATES_ROUNDED = "UPDATES_ROUNDED"
_LOST_UNDER = 1e-4
"""Learning rate from which on most updates are felt."""
_DEFAULT_LR = 5e-5
"""Of Transformers."""


def dtype_of(config: Stage2Config) -> str | None:
    """Of the weights: as asked, else as the model's config.json says; None if it is not here."""
    path = config.model.path
    if config.model.dtype != "auto":
        return config.model.dtype
    if path is None or path in EMBEDDED_MODELS:
        return "float32"
    try:
        said = read_json_object(Path(path) / "config.json")
    except OSError:
        return None
    return str(said.get("dtype") or said.get("torch_dtype") or "float32")


def rounded_updates(config: Stage2Config, dtype: str | None) -> ConfigProblem | None:
    """For weights of this type, what a person should know before they are trained."""
    rate = config.training.passed_on.get("learning_rate", _DEFAULT_LR)
    if config.model.tuning != "full" or dtype != "bfloat16" or rate >= _LOST_UNDER:
        return None
    return ConfigProblem(
        "model.dtype",
        config.model.dtype,
        f"trains bfloat16 weights; most updates at learning_rate {rate:g} round to nothing there",
        "set model.dtype: float32 and training.bf16: true",
    )
