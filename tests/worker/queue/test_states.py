"""The state machine and the rows that each transition leaves."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

import worker
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.states import TRANSITIONS, State, transition
from worker.read import feed, jobs


def put(db: Database, number: int, state: State) -> None:
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(state=state, fence=5))


@pytest.mark.requirement("JB-06")
def test_only_drawn_transitions_happen_and_each_leaves_one_audit_row(
    db: Database, tally: Callable[..., int]
) -> None:
    """What is not drawn changes nothing at all: every pair of states is tried."""
    for source, to in itertools.product(State, State):
        number = tally()
        put(db, number, source)

        with db.write_tx() as conn:
            moved = transition(conn, number, to, actor="ada", why="because", cause="X")

        assert moved is (to in TRANSITIONS[source])
        after = jobs.get_job(db, number)
        rows = [
            (row.from_state, row.to_state, row.actor, row.why) for row in jobs.audit(db, number)
        ]
        assert after.state is (to if moved else source)
        assert after.cause == ("X" if moved else None)
        assert rows[1:] == ([(source, to, "ada", "because")] if moved else [])


@pytest.mark.requirement("JB-04")
def test_a_transition_with_a_stale_fence_changes_nothing(
    db: Database, tally: Callable[..., int]
) -> None:
    """The job belongs to a later holder of the lane."""
    number = tally()
    put(db, number, State.RUNNING)
    before = feed.last_change_id(db)

    with db.write_tx() as conn:
        moved = transition(conn, number, State.SUCCEEDED, actor="late", why="done", fence=4)

    assert not moved
    assert jobs.get_job(db, number).state is State.RUNNING
    assert len(jobs.audit(db, number)) == 1
    assert feed.last_change_id(db) == before


@pytest.mark.requirement("JB-06")
def test_a_transition_that_is_rolled_back_leaves_no_audit_row(
    db: Database, tally: Callable[..., int]
) -> None:
    """Audit, counter and change feed belong to the same transaction."""
    number = tally()
    before = feed.last_change_id(db)

    def half_way() -> None:
        with db.write_tx() as conn:
            transition(conn, number, State.RUNNING, actor="ada", why="because")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half_way()

    assert len(jobs.audit(db, number)) == 1
    assert feed.last_change_id(db) == before
    assert jobs.counts(db)[State.RUNNING] == 0


def test_the_counters_follow_every_transition(db: Database, tally: Callable[..., int]) -> None:
    """They say at once what counting the rows would say."""
    first, _ = tally(), tally()

    with db.write_tx() as conn:
        transition(conn, first, State.RUNNING, actor="ada", why="because")
        transition(conn, first, State.FAILED, actor="ada", why="because")

    found = {state: n for state, n in jobs.counts(db).items() if n}
    assert found == {State.QUEUED: 1, State.FAILED: 1}


@pytest.mark.requirement("JB-06")
def test_no_other_module_writes_a_jobs_state() -> None:
    """One place: a write of `state` elsewhere would leave no audit row."""
    writers = set()
    for path in Path(worker.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="values"), keywords=words):
                    if any(word.arg == "state" for word in words):
                        writers.add(path.name)

    assert writers == {"states.py"}


@pytest.mark.requirement("JB-06")
def test_the_documents_draw_exactly_the_transitions_there_are() -> None:
    """The table in docs/architecture.md is the state machine, arrow by arrow."""
    text = (Path(__file__).resolve().parents[3] / "docs/architecture.md").read_text("utf-8")
    table = text.partition("| from | verb | to |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if "---" not in line]
    drawn = {(row[0].strip(), row[2].strip()) for row in rows if len(row) == 3}

    assert drawn == {(source, to) for source, targets in TRANSITIONS.items() for to in targets}
