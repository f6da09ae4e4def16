"""What a page reads of jobs and of tonight is the same on every database."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import insert, update

from worker.db.connection import Database
from worker.db.tables import job, job_tag, metric
from worker.queue.states import State, note
from worker.queue.submit import enqueue
from worker.read.audit import AuditFilter, audit_page
from worker.read.board import Filter, board_page, gates_of
from worker.read.spending import spending
from worker.read.tonight import preview
from worker.schedule import policy
from worker.schedule.governor import Memory
from worker.schedule.policy import Policy

SERIES = "heldout/select"


@pytest.mark.requirement("JB-05")
def test_a_row_of_the_board_has_its_figures_tags_and_gates(db: Database) -> None:
    """Figures come as one JSON list, with null for what the result does not say."""
    number = enqueue(db, "tally", {}, actor="test")
    result = {"verdict": "gain", "lift": 0.5, "lift_ci95": [0.25, 0.75], "rest": "x" * 1000}
    with db.write_tx() as conn:
        ended = {"state": State.SUCCEEDED, "result": result}
        conn.execute(update(job).where(job.c.id == number).values(**ended))
        conn.execute(insert(job_tag).values(job_id=number, tag="a"))
        for step, value in ((10, 0.75), (0, 0.5)):
            values = {"job_id": number, "series": SERIES, "step": step, "attempt": 1}
            conn.execute(insert(metric).values(**values, value=value, at=time.time()))

    wanted = (Filter(), Filter((State.SUCCEEDED,)), Filter(tag="a"), Filter(before=number + 1))
    for narrowed in wanted:
        [row] = board_page(db, narrowed, SERIES).rows
        assert (row.id, row.state, row.tags) == (number, State.SUCCEEDED, ("a",))
        assert row.gates == ((0, 0.5), (10, 0.75))
        assert row.result["verdict"] == "gain"
        assert row.result["lift_ci95"] == [0.25, 0.75]
        assert row.result["phase"] is None
    assert board_page(db, Filter(tag="b"), SERIES).rows == []
    assert board_page(db, Filter(before=number), SERIES).rows == []
    assert gates_of(db, number, SERIES) == [(0, 0.5), (10, 0.75)]
    assert gates_of(db, number + 1, SERIES) == []


@pytest.mark.requirement("UI-01")
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("épreuve", "É"),
        ("ÉPREUVE", "e\u0301preuve"),
        ("Größe 7B", "GRÖSSE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ночь Ёлка", "НОЧЬ ё"),
        ("１２ steps", "12 STEPS"),
        ("50%_off", "50%_OFF"),
    ],
)
def test_a_name_and_a_word_of_the_audit_are_found_in_whatever_case(
    db: Database, name: str, asked: str
) -> None:
    """Of any alphabet, and however its accents are written; a wildcard of SQL is a character."""
    enqueue(db, "tally", {}, actor="test", name="50 xx off")
    number = enqueue(db, "tally", {}, actor="test", name=name, force=True)
    with db.write_tx() as conn:
        note(conn, number, State.QUEUED, actor="test", why=f"{name} was looked at")

    assert [row.id for row in board_page(db, Filter(text=asked), SERIES).rows] == [number]
    assert [row.id for row in board_page(db, Filter(text=f"#{number}"), SERIES).rows] == [number]
    [entry] = audit_page(db, AuditFilter(text=asked)).entries
    assert entry.job_id == number


@pytest.mark.requirement("LN-04")
def test_tonight_and_what_was_spent_are_read_the_same(db: Database) -> None:
    """With a policy that counts failures, over a history of one experiment."""
    now = time.time()
    policy.arm(db, Policy(zone="UTC", cap_usd=5, max_failures=1), actor="test", now=now - 60)
    done = enqueue(db, "tally", {"steps": 2}, actor="test")
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == done).values(state=State.SUCCEEDED))
    waiting = enqueue(db, "tally", {"steps": 3}, actor="test")

    found = preview(db, now, lambda: Memory(20.0, 25.0, 2.0))

    assert [(step.job_id, step.expected_by) for step in found.steps] == [(waiting, "guess")]
    assert found.starts_at == now
    assert spending(db, now).days[0].cap_usd == 5
