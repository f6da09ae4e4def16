"""Rollups on SQLite and on PostgreSQL: written with the rows, filled for an older database."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from tests.worker.db.test_metrics import by_hand, measured, started, stored, write
from worker.db import dialects
from worker.db.connection import Database, migrations_dir, open_database, url_of
from worker.queue.submit import enqueue
from worker.read.series import curves, summaries
from worker.settings import WorkerSettings


def test_rollups_follow_new_replaced_and_superseded_steps(db: Database) -> None:
    """The same statements on both."""
    number = enqueue(db, "tally", {}, actor="test", force=True)
    write(db, number, [measured(step, a__x=float(step % 7)) for step in range(2000)])
    write(db, number, [measured(11, a__x=99.0), measured(1999, a__x=-1.0)])
    assert stored(db) == by_hand(db)

    write(db, number, [started(1500), measured(1501, attempt=2, a__x=3.0)])

    assert stored(db) == by_hand(db)
    curve = curves(db, number, ["a/x"])["a/x"]
    assert (curve.size, curve.n, max(curve.highs)) == (2, 1502, 99.0)


_JOB = """
INSERT INTO job (id, kind, name, state, config, created_at, created_by, attempt, fence, rescues,
                 oom_deferred, ingested_seq, ingested_offset, result)
VALUES (:id, 'tally', 'tally', 'succeeded', '{}', 0, 'test', 1, 1, 0, 0, 0, 0, '{}')"""


def test_a_database_of_before_gets_rollups_of_its_rows(settings: WorkerSettings) -> None:
    """By the migration, for every job at once."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = dialects.connect(url_of(settings)).writer
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0003")
        for job in (1, 2):
            conn.execute(text(_JOB), {"id": job})
        rows = [{"job": job, "step": step} for job in (1, 2) for step in range(100)]
        insert = "INSERT INTO metric (job_id, series, step, attempt, value)"
        conn.execute(text(f"{insert} VALUES (:job, 'a/x', :step, 1, :step * 0.5)"), rows)
    engine.dispose()

    with open_database(settings) as db:
        assert stored(db) == by_hand(db)
        known = summaries(db, 2)["a/x"]
    assert (known.n, known.low, known.high, known.last_step) == (100, 0.0, 49.5, 99)
