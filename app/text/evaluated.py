"""What was evaluated afterwards, in words: for the morning report and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from app.text import scores, wording
from worker.report.evaluated import Evaluated, EvaluatedLine

HEAD = ("bench", "checkpoint", "step 0", "score, 95 %", "n", "difference, 95 %")


def cells(line: EvaluatedLine) -> tuple[str, ...]:
    """One for each of `HEAD`."""
    which = f"{line.checkpoint}, published" if line.published else line.checkpoint
    ends = scores.between(line.low, line.high)
    picked = f" [{scores.PICKED}]" if line.picked else ""
    return (
        scores.named(line.column),
        which,
        wording.percent(line.before),
        f"{wording.percent(line.after)} ({ends}){picked}",
        str(line.n),
        _difference(line),
    )


def _difference(line: EvaluatedLine) -> str:
    if line.lift is None:
        return wording.UNKNOWN
    ends = wording.interval(line.lift_low, line.lift_high)
    return f"{wording.points(line.lift)} ({ends}){'' if line.paired else ', not paired'}"


def text_table(found: Evaluated) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Head and rows, for a terminal."""
    return HEAD, [cells(line) for line in found.lines]


def steps(found: Evaluated) -> str:
    """Which checkpoints have a score.

    >>> steps(Evaluated(job_id=1, name="a", steps=[0, 20], lines=[]))
    'Scored: steps 0 and 20. All of them stand on the leaderboard.'
    """
    *before, last = map(str, found.steps)
    named = f"steps {', '.join(before)} and {last}" if before else f"step {last}"
    return f"Scored: {named}. All of them stand on the leaderboard."
