"""Who listens to a loop. Decides nothing in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

from engine.data.rows import Question
from engine.rewards.adapter import Verdict
from engine.rl.state import LoopState, StepReport
from engine.sampling.base import Groups


class LoopObserver:
    """Listens to a loop; this one does nothing. Called in the order of the methods."""

    def phase(self, name: str, step: int) -> None:
        """A phase of `engine.contract.events.PHASES` begins."""

    def sampled(
        self,
        step: int,
        tasks: Sequence[Question],
        groups: Groups,
        verdicts: Sequence[Sequence[Verdict]],
        advantages: Sequence[Sequence[float]],
    ) -> None:
        """Rollouts of a step are judged; nothing has been trained on them."""

    def judging(self, step: int) -> None:
        """The verifiers begin with the rollouts that were sampled last."""

    def recalled(self, step: int) -> None:
        """The step's rollouts were sampled before, by an attempt that was killed."""

    def stepped(self, report: StepReport, state: LoopState) -> None:
        """A step is over."""

    def alerted(self, code: str, step: int, text: str) -> None:
        """Something a person should know."""

    def gated(self, step: int, result: SupportsFloat, state: LoopState) -> None:
        """A held-out gate is over; its score stands in the state."""

    def checkpoint(
        self,
        state: LoopState,  # noqa: ARG002 - for those who override
        *,
        gate: bool,  # noqa: ARG002 - for those who override
        stopping: bool,  # noqa: ARG002 - for those who override
    ) -> bool:
        """The state is resumable here; returns whether it was kept.

        Asked before the baseline, after each step with its gate, and when stopping.
        """
        return True
