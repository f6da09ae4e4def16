"""What was evaluated afterwards: of runs whose checkpoints jobs of the night scored on benches.

A line a bench and filter: the baseline, and the checkpoint that the run published (else its last),
row by row. Knows no sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from worker.db.connection import Database
from worker.db.tables import eval_score
from worker.read.scores.leaderboard import Cell, Column, Leaderboard, Line, scores_of_job
from worker.read.scores.pairs import PairError, compare_pairs, pair_ref


class EvaluatedLine(BaseModel):
    """A bench by one filter. Scores are shares of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    column: Column
    """What was measured."""
    job_id: int
    """Which scored the checkpoint."""
    checkpoint: str
    published: bool
    n: int
    before: float | None
    """By the run's step 0; None where nobody scored that."""
    after: float
    low: float
    high: float
    """95 % interval of `after`."""
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None
    paired: bool = False
    """Row by row: the rows of both are still there."""
    picked: bool
    """These rows picked the checkpoint."""


class Evaluated(BaseModel):
    """One run."""

    model_config = ConfigDict(frozen=True)

    job_id: int
    name: str
    steps: list[int]
    """Of the checkpoints that have a score."""
    lines: list[EvaluatedLine]


def evaluated_by(db: Database, jobs: Sequence[int]) -> list[Evaluated]:
    """Of every run with a checkpoint that one of these jobs scored, gates aside."""
    c = eval_score.c
    runs = select(c.run).where(c.job_id.in_(jobs), c.run.is_not(None), c.runner != "gate")
    with db.read() as conn:
        found = conn.execute(runs.distinct().order_by(c.run)).scalars().all()
    told = (_of_run(db, run) for run in found)
    return [one for one in told if one is not None]


def _of_run(db: Database, run: int) -> Evaluated | None:
    board = scores_of_job(db, run)
    own = [] if board is None else [line for line in board.lines if line.run == run]
    if board is None or not own:
        return None
    lines = list(_lines(db, board, own))
    return Evaluated(
        job_id=run,
        name=own[0].run_name or f"job {run}",
        steps=[line.step for line in own],
        lines=lines,
    )


def _lines(db: Database, board: Leaderboard, own: Sequence[Line]) -> Iterator[EvaluatedLine]:
    for column in board.columns:
        scored = [line for line in own if column.measure in line.cells]
        if scored:
            told = next((line for line in scored if line.published), scored[-1])
            yield _line(db, column, told, told.cells[column.measure])


def _line(db: Database, column: Column, line: Line, cell: Cell) -> EvaluatedLine:
    found = EvaluatedLine(
        column=column,
        job_id=cell.job_id,
        checkpoint=line.checkpoint,
        published=line.published,
        n=cell.n,
        before=cell.change.before if cell.change else None,
        after=cell.score,
        low=cell.low,
        high=cell.high,
        picked=cell.picked,
    )
    if cell.change is None:
        return found
    change = cell.change
    moved = {"lift": change.lift, "lift_low": change.low, "lift_high": change.high}
    with suppress(PairError):
        [pair] = compare_pairs(db, [pair_ref(change.ref, cell.ref)]).pairs
        moved = {"lift": pair.lift, "lift_low": pair.low, "lift_high": pair.high}
        return found.model_copy(update={**moved, "paired": pair.paired})
    return found.model_copy(update=moved)
