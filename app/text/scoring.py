"""How far a job is that scores checkpoints, and which jobs score those of a run; in words.

For the run page and the command line. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from engine.contract.evaluate.of_run import EVALUATION
from engine.contract.known import whole
from worker.queue.states import State
from worker.read.evaluations import Evaluation
from worker.read.jobs import JobView
from worker.read.scores.leaderboard import Leaderboard


@dataclass(frozen=True)
class Scoring:
    """A job with benches."""

    checkpoints: int
    scored: int
    """Of them those with a score on any bench."""
    benches: Sequence[str]
    now: str | None
    """What is asked, while it runs."""
    rows: str | None
    """Rows answered of all, over benches and checkpoints."""
    run: int | None
    """The run whose checkpoints they are; None where they are of several or of none."""

    @classmethod
    def of(cls, job: JobView, scores: Leaderboard | None) -> Self | None:
        """None for a job that asks no benches."""
        benches = job.config.get("benches") if job.kind == EVALUATION else None
        named = [str(one.get("name")) for one in benches or () if isinstance(one, dict)]
        if not named:
            return None
        models = job.config.get("checkpoints") or [{}]
        runs = {one.get("run") for one in models if isinstance(one, dict)}
        now, step = job.result.get("domain"), whole(job.result.get("step"))
        return cls(
            checkpoints=len(models),
            scored=0 if scores is None else sum(bool(line.cells) for line in scores.lines),
            benches=named,
            now=now if job.state is State.RUNNING and isinstance(now, str) else None,
            rows=None if step is None else f"{step} of {job.result.get('max_steps') or '–'}",
            run=whole(next(iter(runs))) if len(runs) == 1 else None,
        )

    @property
    def done(self) -> str:
        """`3 of 4 checkpoints`."""
        many = "" if self.checkpoints == 1 else "s"
        return f"{self.scored} of {self.checkpoints} checkpoint{many}"

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and value, for a terminal."""
        yield "scored", f"{self.done} on {', '.join(self.benches)}"
        if self.run is not None:
            yield "checkpoints", f"of job {self.run}"
        if self.now is not None:
            yield "asking", self.now


def steps(one: Evaluation) -> str:
    """What a job scores of a run."""
    many = "s" if len(one.steps) > 1 else ""
    return f"step{many} {', '.join(map(str, one.steps))}: {one.state}"
