"""Who writes a loop down. Decides nothing in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import SupportsFloat

from engine.rl.buffer import JudgedGroup
from engine.rl.state import LoopState, StepReport
from engine.run.memory import available_gb, rss_gb


class LoopObserver:
    """Hears what a loop does, in the order of the methods; this one writes nothing down."""

    def phase(self, name: str, step: int) -> None:
        """A phase of `engine.contract.events.PHASES` begins."""

    def judging(self) -> None:
        """The verifiers begin with the rollouts that were sampled last."""

    def sampled(self, step: int, groups: Sequence[JudgedGroup], *, recalled: bool) -> None:
        """Rollouts of a step are judged; nothing has been trained on them.

        `recalled`: they were sampled by an attempt that was killed.
        """

    def stepped(
        self,
        report: StepReport,
        state: LoopState,  # noqa: ARG002 - for those who override
    ) -> Mapping[str, float]:
        """A step is over; all that is known of it, those who take its time more than it says."""
        return report.metrics

    def alerted(self, code: str, step: int, text: str) -> None:
        """Something a person should know."""

    def gated(self, step: int, result: SupportsFloat, state: LoopState) -> None:
        """A held-out gate is over; its score stands in the state."""

    def benched(self, name: str, result: SupportsFloat) -> None:
        """A bench that picks nothing was scored at a gate."""

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


class Reporter(LoopObserver):
    """Tells the progress callback of a loop without a recorder its phases, with memory."""

    def __init__(self, progress: Callable[..., None]) -> None:
        self._progress = progress

    def phase(self, name: str, step: int) -> None:
        """With what the process has and the machine still could give."""
        mem = {"rss_gb": round(rss_gb(), 3), "available_gb": round(available_gb(), 3)}
        self._progress(phase=name, step=step, mem=mem)
