"""A reward function that returns what it is asked for; its import takes a while."""

from __future__ import annotations

import numpy as np
import torch


def returns(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Whatever the first completion names."""
    n = len(completions)
    return {
        "tensor": lambda: torch.tensor([0.25] * n),
        "bf16": lambda: torch.tensor([0.25] * n, dtype=torch.bfloat16),
        "numpy": lambda: np.array([0.25] * n, dtype=np.float32),
        "tensors": lambda: [torch.tensor([0.25])] * n,
        "bools": lambda: [True] * n,
        "generator": lambda: (0.25 for _ in range(n)),
        "none": lambda: [None] * n,
        "nan": lambda: [float("nan")] * n,
        "inf": lambda: [float("inf")] * n,
        "text": lambda: ["1.0"] * n,
        "string": lambda: "1",
        "dict": lambda: {"score": 1.0},
        "dicts": lambda: [{"score": 1.0}] * n,
        "nothing": lambda: None,
        "scalar": lambda: 1.0,
        "two": lambda: [1.0, 0.0],
        "empty": list,
    }[completions[0]]()  # type: ignore[no-untyped-call]
