"""The token of a step that lies farthest from the step-0 policy. Torch-free."""

from __future__ import annotations

from typing import NamedTuple


class Farthest(NamedTuple):
    """Ordered by `kl`, its k3 in nats."""

    kl: float
    question_id: str
    sample: int
    place: int
    """Of its completion's tokens, from 0."""
