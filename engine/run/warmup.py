"""Warm-up before step 0: supervised steps until a held-out score is reached, kept in the job cache.

Learning is abrupt, so a warm-up stops at a score and not at a step count. What came of it is kept
under the hash of its whole recipe. Knows neither a loss nor a model: those come in as callables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.run import checkpoint
from engine.run.checkpoint import Warn
from engine.run.once import make_once
from engine.run.stop import Declined, check_abort

Listener = Callable[[int, str, float], None]
"""`(step, series, value)`."""


class WarmupError(Declined):
    """The target was not reached, or what was learnt from is no number."""

    def __init__(self, message: str) -> None:
        super().__init__("WARMUP_SHORT", message)


@dataclass(frozen=True)
class SFTSchedule:
    """One supervised training: how long, and when it is enough."""

    name: str
    """Of the section, for its messages."""
    setting: str
    """Dotted name of the target, for the message that it was not reached."""
    series: tuple[str, str]
    """Of the loss, and of the score."""
    target: float
    max_steps: int
    eval_every: int


def teach(
    schedule: SFTSchedule,
    update: Callable[[int], float],
    evaluate: Callable[[], float],
    listen: Listener,
) -> tuple[int, float]:
    """Steps until `evaluate` reached the target, and what it reached.

    `update(step)` learns one batch and gives its loss. Raises WarmupError when `max_steps` did not
    suffice, Aborted between two steps.
    """
    loss_series, score_series = schedule.series
    best = 0.0
    for step in range(1, schedule.max_steps + 1):
        check_abort()
        listen(step, loss_series, update(step))
        if step % schedule.eval_every == 0:
            reached = evaluate()
            listen(step, score_series, reached)
            best = max(best, reached)
            if reached >= schedule.target:
                return step, reached
    raise WarmupError(
        f"{schedule.name}: {schedule.max_steps} steps reached {best:.2f} on held-out rows, not "
        f"{schedule.setting}={schedule.target}; raise {schedule.name}.max_steps or lower the target"
    )


@dataclass(frozen=True)
class WarmupCache:
    """One entry of the cache; `save` and `load` write and read the weights in a folder."""

    folder: Path
    save: Callable[[Path], object]
    load: Callable[[Path], object]
    warn: Warn

    def load_kept(self) -> dict[str, Any] | None:
        """Give the model what an equal recipe came to; the report of it.

        None without a whole entry, and the model stays as it is; a damaged one is said and removed.
        """
        if not self.folder.is_dir():
            return None
        found = checkpoint.verified(self.folder, self.warn)
        if found is None:
            shutil.rmtree(self.folder, ignore_errors=True)  # another lane may do the same
            return None
        self.load(self.folder)
        return found.state

    def keep(self, report: dict[str, Any]) -> None:
        """Keep the model's weights as they are now, with the report of what brought them there."""

        def fill(folder: Path) -> None:
            self.save(folder)
            checkpoint.seal(folder, report)

        # Where another lane learnt the same recipe meanwhile, its entry is as good.
        make_once(self.folder, fill)

    def kept_or(self, learn: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The kept report, marked as cached; else that of what `learn` did, which is kept."""
        found = self.load_kept()
        if found is not None:
            return {**found, "cached": True}
        report = learn()
        self.keep(report)
        return report
