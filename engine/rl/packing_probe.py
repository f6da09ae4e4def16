"""Whether a model keeps packed rollouts apart: tried before a run, because failing is silent.

A model that ignores the restart of position ids answers all the same, only that the second rollout
has read the first.
"""

from __future__ import annotations

import torch

from engine.contract.errors import RLLoopError
from engine.models.logprobs import BackboneAndHead
from engine.models.policy import Policy
from engine.rl.scoring import Batch, score
from engine.sampling.base import Rollout

_TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}
"""Far above rounding, far below the difference that reading a foreign rollout makes."""


def refuse_mixing(policy: Policy, backbone: BackboneAndHead | None) -> None:
    """Raises RLLoopError when the second of two packed rollouts is not scored as if alone."""
    vocabulary = policy.model.config.get_text_config().vocab_size
    ids = [(7 * place + 1) % vocabulary for place in range(8)]
    first, second = (
        Rollout("probe", 0, (a,), (b, c, d), (), "", False, 0) for a, b, c, d in (ids[:4], ids[4:])
    )
    with torch.no_grad(), policy.computing():
        packed_BT, alone_BT = (
            score(policy.model, batch, 1.0, backbone=backbone).logprobs_BT
            for batch in (
                Batch.packed([first, second], policy.device),
                Batch.of([second], policy.device),
            )
        )
    apart = (packed_BT[1] - alone_BT[0]).abs().max().item()
    if not apart <= _TOLERANCE[policy.precision]:
        raise RLLoopError.of(
            "optim.batching",
            "packed",
            f"lets rollouts read each other in {type(policy.model).__name__}",
            "set it to padded",
        )
