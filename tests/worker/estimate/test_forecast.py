"""What runs took and used: asked by index, however long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Connection, event

from tests.worker.lane_rows import NOON, ended, row_of, succeeded
from worker.budget import ledger
from worker.db.connection import Database
from worker.estimate.envelope import need_of, used_gb
from worker.estimate.forecast import expected, share_left
from worker.estimate.history import History
from worker.queue.submit import enqueue


@contextmanager
def plans(conn: Connection) -> Iterator[list[str]]:
    """How SQLite carries out each SELECT of the block."""
    found: list[str] = []

    def explain(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.startswith("SELECT"):
            rows = cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            found.extend(row[3] for row in rows)

    event.listen(conn, "before_cursor_execute", explain)
    yield found
    event.remove(conn, "before_cursor_execute", explain)


def test_no_question_of_a_start_goes_through_the_history(db: Database) -> None:
    """Not one of them scans a table, or sorts."""
    done = enqueue(db, "tally", {"steps": 2}, actor="test")
    ended(db, done, at=NOON)
    succeeded(db, done)
    row = row_of(db, enqueue(db, "tally", {"steps": 3}, actor="test"))
    with db.read() as conn, plans(conn) as found:
        history = History(conn)
        expected(history, db.settings, row)
        need_of(history, row)
        ledger.held(conn, "cpu")

    assert found
    tables = ("SCAN job", "SCAN attempt", "SCAN ledger")
    assert [step for step in found if step.startswith(tables) or "ORDER BY" in step] == []
    # Neither is gone through for the runs of one kind, or of one experiment.
    assert any("ix_job_kind_done" in step for step in found)
    assert any("ix_job_same_done" in step for step in found)


def test_a_look_at_many_jobs_asks_once_for_the_runs_of_their_kind(db: Database) -> None:
    """What finished jobs took does not change while one transaction reads."""
    done = enqueue(db, "tally", {"steps": 2}, actor="test")
    ended(db, done, at=NOON)
    succeeded(db, done)
    waiting = [enqueue(db, "tally", {"steps": steps}, actor="test") for steps in (3, 4, 5)]
    rows = [row_of(db, number) for number in waiting]
    with db.read() as conn, plans(conn) as found:
        history = History(conn)
        seconds = [expected(history, db.settings, row).seconds for row in rows]

    assert seconds == [3 * seconds[0] / 3, 4 * seconds[0] / 3, 5 * seconds[0] / 3]
    assert sum("ix_job_kind_done" in step for step in found) == 1


@pytest.mark.parametrize(
    ("result", "share"),
    [
        ({}, 1.0),
        ({"step": 0, "max_steps": 4}, 1.0),
        ({"step": 3, "max_steps": 4}, 0.25),
        ({"step": 9, "max_steps": 4}, 0.0),
        ({"step": "3", "max_steps": 4}, 1.0),
        ({"step": 3, "max_steps": 0}, 1.0),
    ],
)
def test_what_is_left_of_a_run_is_a_share(result: dict[str, Any], share: float) -> None:
    """Whatever an engine of another version wrote."""
    assert share_left(result) == share


@pytest.mark.parametrize(
    "trace", [None, {}, {"total_gb": 25}, {"total_gb": "x", "headroom_at_spawn_gb": 1}, 7]
)
def test_a_trace_that_says_too_little_says_nothing(trace: Any) -> None:
    """No number is better than a wrong one."""
    assert used_gb({"mem_trace": trace}) is None


def test_a_run_is_known_by_what_its_own_processes_held() -> None:
    """A stranger's 20 GB beside it are not learnt from."""
    trace = {"total_gb": 25.0, "headroom_at_spawn_gb": 23.0, "peak_used_gb": 24.0}

    assert used_gb({"mem_trace": trace | {"own_peak_gb": 2.2}}) == 2.2
    assert used_gb({"mem_trace": trace | {"own_peak_gb": None}}) == 22.0


TINY = {"base": "embedded:qwen3-tiny", "tuning": "full", "data": {"source": "embedded:addition"}}
STAGE2 = Path(__file__).parents[3] / "examples" / "stage2_ab.yaml"
LARGE = {"base": "Qwen/Qwen3-1.7B", "data": {"source": "embedded:word_problems"}}


def ran(db: Database, config: dict[str, Any], *, steps: int, seconds: float) -> int:
    """A finished run."""
    raw = config | {"max_steps": steps}
    done = enqueue(db, "rl_run", raw, actor="test", force=True)
    ended(db, done, at=NOON, seconds=seconds)
    succeeded(db, done)
    return done


def foreseen(db: Database, config: dict[str, Any], *, steps: int) -> tuple[float, str, int]:
    raw = config | {"max_steps": steps, "seed": 7}
    row = row_of(db, enqueue(db, "rl_run", raw, actor="test", force=True))
    with db.read() as conn:
        return expected(History(conn), db.settings, row)[:3]


@pytest.mark.requirement("UI-06")
def test_runs_of_another_model_say_nothing_about_this_one(db: Database) -> None:
    """A model a thousand times as large does not take as long; it is governed by the setting."""
    ran(db, TINY, steps=10, seconds=20.0)

    assert foreseen(db, TINY, steps=30) == (60.0, "kind", 1)
    assert foreseen(db, LARGE, steps=30) == (db.settings.estimate_hours * 3600, "guess", 0)


def test_a_run_of_the_same_model_is_found_behind_many_of_another(db: Database) -> None:
    """The newest of a kind may all be of a model that is tried a lot."""
    ran(db, LARGE, steps=10, seconds=9000.0)
    for _ in range(12):
        ran(db, TINY, steps=10, seconds=20.0)

    assert foreseen(db, LARGE, steps=20) == (18_000.0, "kind", 1)
    assert foreseen(db, TINY, steps=20) == (40.0, "kind", 10)


def test_a_trial_of_a_few_steps_says_little_about_a_long_run(db: Database) -> None:
    """Its start is most of it; where nothing else ran it is all there is to go by."""
    ran(db, TINY, steps=4, seconds=100.0)
    assert foreseen(db, TINY, steps=400) == (10_000.0, "kind", 1)

    ran(db, TINY, steps=200, seconds=300.0)
    ran(db, TINY, steps=300, seconds=420.0)

    assert foreseen(db, TINY, steps=400) == (580.0, "kind", 2)
    assert foreseen(db, TINY, steps=4) == (100.0, "kind", 1)


def test_the_steps_of_a_stage_2_run_count_too(db: Database) -> None:
    """They stand elsewhere in its config than those of an `rl_run`."""
    raw = yaml.safe_load(STAGE2.read_text())
    done = enqueue(db, "stage2_ab", raw, actor="test")
    ended(db, done, at=NOON, seconds=300.0)
    succeeded(db, done)
    steps = raw["training"]["max_steps"]
    longer = raw | {"training": raw["training"] | {"max_steps": 4 * steps}}
    row = row_of(db, enqueue(db, "stage2_ab", longer, actor="test"))

    with db.read() as conn:
        assert expected(History(conn), db.settings, row)[:3] == (1200.0, "kind", 1)


def test_looking_for_runs_of_one_model_goes_through_no_history(db: Database) -> None:
    """Along the index of the kind, and then by number."""
    ran(db, TINY, steps=10, seconds=20.0)
    row = row_of(db, ran(db, TINY | {"seed": 7}, steps=10, seconds=20.0))
    with db.read() as conn, plans(conn) as found:
        History(conn).of_model("rl_run", "base", row["config"]["base"])

    assert any("ix_job_kind_done" in step for step in found)
    assert [step for step in found if step.startswith("SCAN job") or "ORDER BY" in step] == []
