"""A database of this version comes forward to the next one, made up here, with its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.queue.verbs import by_hand
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.db import migrations
from worker.db.connection import open_database
from worker.queue import control
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import feed, jobs
from worker.settings import WorkerSettings

NEXT = '''
"""Made up: a column more, and a table that is built anew."""

import sqlalchemy as sa
from alembic import op

revision = "{number}_made_up"
down_revision = "{newest}"


def upgrade():
    op.add_column("job", sa.Column("colour", sa.String(), nullable=False, server_default="blue"))
    with op.batch_alter_table("attempt", recreate="always") as table:
        table.add_column(sa.Column("room", sa.String(), nullable=True))
'''


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, the program is one whose newest migration is `NEXT`."""

    def update() -> None:
        place = tmp_path / "migrations"
        shutil.copytree(migrations.migrations_dir(), place)
        newest = migrations.known_versions()[-1]
        number = f"{int(newest[:4]) + 1:04}"
        text = NEXT.format(number=number, newest=newest)
        (place / "versions" / f"{number}_made_up.py").write_text(text)
        monkeypatch.setattr(migrations, "migrations_dir", lambda: place)

    return update


@pytest.mark.requirement("JB-01")
def test_jobs_of_this_version_are_claimed_settled_and_retried_by_the_next_one(
    settings: WorkerSettings, next_version: Callable[[], None]
) -> None:
    """In their order, without losing a row; a page that stood at a change goes on behind it."""
    with open_database(settings) as db:
        for seed in range(4):
            enqueue(db, "tally", {"seed": seed}, actor="ada")
        with by_hand(db) as hand:
            hand.run(State.FAILED)
            running = hand.claim()  # its drain dies with this version
        seen = feed.last_change_id(db)
    assert running is not None

    next_version()
    with open_database(settings) as db:
        with db.read() as conn:
            colours = conn.exec_driver_sql("SELECT colour FROM job").scalars().all()
            [version] = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalars()
        assert version == migrations.known_versions()[-1]
        assert version.endswith("_made_up")
        assert colours == ["blue"] * 4
        assert jobs.attempts(db, 1)[0].outcome == "failed"
        assert feed.last_change_id(db) == seen

        with by_hand(db) as hand:
            rescue(hand.lease, LocalRunner(settings))
            control.retry(db, 1, actor="test")
            assert hand.order() == [1, 2, 3, 4]
        counts = {state: n for state, n in jobs.counts(db).items() if n}
        assert counts == {State.SUCCEEDED: 4}
        assert [row.to_state for row in jobs.audit(db, 1)] == [
            "queued",
            "running",
            "failed",
            "queued",
            "running",
            "succeeded",
        ]
