"""Scores are stored, taken back, ordered and exported alike on every database."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from tests.worker.read.scored import job, put, score
from worker.attempt.scores import write_scores
from worker.db.connection import Database
from worker.db.tables import job as job_table
from worker.read.scores.leaderboard import Conditions, Wanted, every_score, leaderboard


@pytest.mark.requirement("JB-05")
def test_a_leaderboard_says_the_same(db: Database) -> None:
    """Its order, pages, best ones, marks and conditions, with ties and values that nobody knows."""
    run, other = job(db, tags=["mine"]), job(db)
    with db.write_tx() as conn:
        result = {"selected_step": 20, "published_step": None, "rest": "x"}
        conn.execute(update(job_table).where(job_table.c.id == run).values(result=result))
    steps = [score(run=run, step=step, solved=20, truncated=None) for step in (0, 10)]
    put(db, run, *steps, score(run=run, step=20, solved=30, truncated=0.25, picked=True))
    put(db, other, score(run=other, step=5, base="b", solved=20, truncated=0.5))
    put(db, other, score(run=other, step=5, base="b", solved=25))

    def told(**wanted: object) -> list[tuple[int | None, int, float]]:
        found, lines = leaderboard(db, Wanted.model_validate(wanted)), []
        for line in found.lines:
            lines += [(line.run, line.step, cell.score) for cell in line.cells.values()]
        return lines

    last, middle, first = (run, 20, 0.75), (other, 5, 0.625), {(run, 0, 0.5), (run, 10, 0.5)}
    assert (told()[:2], set(told()[2:])) == ([last, middle], first)
    assert told(best=True) == [last, middle]
    assert told(tag="mine", limit=1) == [last]
    assert told(sort="truncated", limit=1) == [last]
    assert told(sort="newest", limit=1) == [middle]
    page = leaderboard(db, Wanted(limit=2))
    assert page.lines[0].chosen
    assert not page.lines[0].published
    assert set(told(after=page.next_after)) == first
    flat = [one.cell.score for one in every_score(db, Conditions(best=True))]
    assert sorted(flat) == [0.625, 0.75]

    with db.write_tx() as conn:
        write_scores(conn, run, [{"type": "started", "attempt": 2, "resumed_from": 1}])
    assert {step for number, step, _ in told() if number == run} == {0, 10}
