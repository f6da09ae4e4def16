"""The spine: the queue, its audit, metrics, the change feed, the lane and the state counters."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATES = ("queued", "running", "succeeded", "failed", "cancelled", "aborted")


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("heartbeat_at", sa.Float(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lane", sa.String(), nullable=True),
        sa.Column("engine", sa.String(), nullable=True),
        sa.Column("rescues", sa.Integer(), nullable=False),
        sa.Column("oom_deferred", sa.Integer(), nullable=False),
        sa.Column("ingested_seq", sa.Integer(), nullable=False),
        sa.Column("ingested_offset", sa.Integer(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("cause", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_state_id", "job", ["state", "id"])
    op.create_table(
        "job_event",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("from_state", sa.String(), nullable=True),
        sa.Column("to_state", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
    )
    op.create_index("ix_job_event_job_id", "job_event", ["job_id", "id"])
    op.create_table(
        "metric",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("series", sa.String(), primary_key=True),
        sa.Column("step", sa.Integer(), primary_key=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "change",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lane",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("since", sa.Float(), nullable=True),
        sa.Column("heartbeat_at", sa.Float(), nullable=True),
        sa.Column("beat", sa.Float(), nullable=True),
    )
    counts = op.create_table(
        "state_count",
        sa.Column("state", sa.String(), primary_key=True),
        sa.Column("n", sa.Integer(), nullable=False),
    )
    op.bulk_insert(counts, [{"state": state, "n": 0} for state in STATES])
