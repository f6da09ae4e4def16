"""Rollouts: what a policy answered, and the two protocols of a backend that makes it answer.

Torch-free: the samplers live in modules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.data.rows import Question


@dataclass(frozen=True)
class Rollout:
    """One completion, as ids: text is only for verifiers and people."""

    question_id: str
    sample: int
    """Which of the question's k samples this is."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """Ends with its EOS, or with what a stop text ended it by, unless truncated."""
    logprobs: tuple[float, ...]
    """log π(token) of each completion id at the sampling temperature."""
    text: str
    """With `begun` in front."""
    truncated: bool
    """It reached the length limit without an EOS."""
    version: int
    """Step of the weights that sampled it."""
    draw_shift: float = 0.0
    """Sum over its tokens of log q − log π, q being what they were drawn from: 0 unless filters
    or penalties reshaped the draw."""
    begun: str = ""
    """What of the text the prompt ended in already."""
    server: str = ""
    """Address of the server that drew it; empty where the policy itself did."""


Groups = Sequence[Sequence[Rollout]]
"""One inner sequence of k rollouts for each question, in the questions' order."""


class Sampler(Protocol):
    """Draws. What every backend promises: `tests/engine/sampling/conformance`."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task under the current policy."""
        ...


class WeightSync(Protocol):
    """Brings the trainer's weights to whoever draws."""

    def bring(self) -> None:
        """What is drawn after this is drawn by the policy's weights of now.

        Nothing to do where they are in use already. Raises ServerError when they do not arrive.
        """
        ...


class OwnWeights:
    """The policy that is trained draws by itself: its weights are there."""

    def bring(self) -> None:
        """Nothing to do."""
