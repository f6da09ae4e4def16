"""Fewer pages in the commits of a claim and of a settlement: 8 and 14 instead of 9 and 17.

The search for a finished result goes along `ix_job_same_done`, which begins with the same column.
An ended attempt is found by its key, so it needs no row number beside it. And the newest change is
never dropped, so its numbers grow without a second table that remembers them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_job_tried", table_name="job")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_attempt()
        _rebuild_change()


def _rebuild_attempt() -> None:
    op.create_table(
        "attempt_by_key",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lane", sa.String(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=True),
        sqlite_with_rowid=False,
    )
    columns = "job_id, n, fence, lane, started_at, ended_at, seconds, outcome, cause"
    _replace("attempt", "attempt_by_key", columns)
    op.create_index("ix_attempt_ended_at", "attempt", ["lane", "ended_at"])


def _rebuild_change() -> None:
    op.create_table(
        "change_without_sequence",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
    )
    _replace("change", "change_without_sequence", "id, topic, job_id")


def _replace(old: str, new: str, columns: str) -> None:
    op.execute(f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {old}")  # noqa: S608 - of this file
    op.drop_table(old)
    op.rename_table(new, old)
