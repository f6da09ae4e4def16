"""A database of the first version comes forward with its jobs."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tests.worker.jobs.verbs import by_hand
from worker.attempt.rescue import rescue
from worker.database import migrations_dir, open_database
from worker.jobs import control, views
from worker.jobs.states import State
from worker.settings import WorkerSettings

FIRST_VERSION = sa.text(
    "INSERT INTO job (id, kind, name, state, config, created_at, created_by, attempt, fence,"
    " rescues, oom_deferred, ingested_seq, ingested_offset, result, lane, started_at,"
    " heartbeat_at) VALUES (:id, 'tally', 'old', :state, '{}', 1.0, 'ada', 1, 0, 0, 0, 0, 0, '{}',"
    " :lane, 2.0, 3.0)"
)


@pytest.mark.requirement("JB-01")
def test_jobs_of_the_first_version_are_claimed_settled_and_retried_like_any_other(
    settings: WorkerSettings,
) -> None:
    """In their order, without losing a row."""
    settings.data_dir.mkdir(parents=True)
    engine = sa.create_engine(settings.url)
    with engine.begin() as conn:
        config = Config()
        config.set_main_option("script_location", str(migrations_dir()))
        config.attributes["connection"] = conn
        command.upgrade(config, "0001")
        for number, state in enumerate(("failed", "queued", "queued", "running"), 1):
            lane = "cpu" if state == "running" else None
            conn.execute(FIRST_VERSION, {"id": number, "state": state, "lane": lane})
            counted = sa.text("UPDATE state_count SET n = n + 1 WHERE state = :state")
            conn.execute(counted, {"state": state})
    engine.dispose()

    with open_database(settings) as db:
        with by_hand(db) as hand:
            rescue(hand.lease)
            control.retry(db, 1, actor="test")
            assert hand.order() == [1, 2, 3, 4]
        assert views.counts(db)[State.SUCCEEDED] == 4
        assert views.attempts(db, 4)[0].seconds == 0
