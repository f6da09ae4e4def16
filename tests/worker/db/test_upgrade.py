"""A database of an earlier version comes forward with its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tests.worker.queue.verbs import by_hand
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.db.connection import migrations_dir, open_database, url_of
from worker.queue import control
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import feed
from worker.read import jobs as views
from worker.settings import WorkerSettings

A_JOB = sa.text(
    "INSERT INTO job (id, kind, name, state, config, created_at, created_by, attempt, fence,"
    " rescues, oom_deferred, ingested_seq, ingested_offset, result, lane, started_at,"
    " heartbeat_at) VALUES (:id, 'tally', 'old', :state, '{}', 1.0, 'ada', 1, 0, 0, 0, 0, 0, '{}',"
    " :lane, 2.0, 3.0)"
)
AN_ATTEMPT = sa.text(
    "INSERT INTO attempt (job_id, n, fence, lane, started_at, ended_at, seconds, outcome, cause)"
    " VALUES (1, :n, 7, 'cpu', 2.0, 12.5, 10.5, :outcome, :cause)"
)
A_JOB_DONE = A_JOB.bindparams(id=1, state="succeeded", lane=None)


@contextmanager
def _of_version(settings: WorkerSettings, version: str) -> Iterator[sa.Connection]:
    """An empty database as that version left it."""
    settings.data_dir.mkdir(parents=True)
    engine = sa.create_engine(url_of(settings))
    with engine.begin() as conn:
        config = Config()
        config.set_main_option("script_location", str(migrations_dir()))
        config.attributes["connection"] = conn
        command.upgrade(config, version)
        yield conn
    engine.dispose()


@pytest.mark.requirement("JB-01")
def test_jobs_of_the_first_version_are_claimed_settled_and_retried_like_any_other(
    settings: WorkerSettings,
) -> None:
    """In their order, without losing a row."""
    with _of_version(settings, "0001") as conn:
        for number, state in enumerate(("failed", "queued", "queued", "running"), 1):
            lane = "cpu" if state == "running" else None
            conn.execute(A_JOB, {"id": number, "state": state, "lane": lane})
            counted = sa.text("UPDATE state_count SET n = n + 1 WHERE state = :state")
            conn.execute(counted, {"state": state})

    with open_database(settings) as db:
        with by_hand(db) as hand:
            rescue(hand.lease, LocalRunner(settings))
            control.retry(db, 1, actor="test")
            assert hand.order() == [1, 2, 3, 4]
        assert views.counts(db)[State.SUCCEEDED] == 4
        assert views.attempts(db, 4)[0].seconds == 0


@pytest.mark.requirement("JB-01")
def test_tables_that_are_built_anew_keep_their_rows_and_numbers(settings: WorkerSettings) -> None:
    """Attempts stay as they were charged; a page that stood at a change goes on behind it."""
    with _of_version(settings, "0007") as conn:
        conn.execute(A_JOB_DONE)
        conn.execute(AN_ATTEMPT, {"n": 1, "outcome": "queued", "cause": "LOST"})
        conn.execute(AN_ATTEMPT, {"n": 2, "outcome": "succeeded", "cause": None})
        conn.exec_driver_sql("INSERT INTO change (id, topic, job_id) VALUES (41, 'job', 1)")

    with open_database(settings) as db:
        first, second = views.attempts(db, 1)
        known = feed.last_change_id(db)
        enqueue(db, "tally", {}, actor="test")
        news = feed.changes_after(db, known)

    assert (first.n, first.outcome, first.cause, first.seconds) == (1, "queued", "LOST", 10.5)
    assert (second.n, second.outcome, second.cause) == (2, "succeeded", None)
    assert known == 41
    assert [(one.id, one.topic) for one in news] == [(42, "job"), (43, "board")]
