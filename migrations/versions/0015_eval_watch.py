"""Runs whose checkpoints are scored as they appear."""

import sqlalchemy as sa
from alembic import op

revision = "0015_eval_watch"
down_revision = "0014_seed_groups"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "eval_watch",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), nullable=False),
        sa.Column("asked", sa.String(), nullable=False),
        sa.Column("evaluate", sa.JSON(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("closed_at", sa.Float()),
        sa.Column("problem", sa.Text()),
    )
    op.create_index("ix_eval_watch_job_id", "eval_watch", ["job_id", "asked"], unique=True)
    where = sa.text("closed_at IS NULL")
    op.create_index(
        "ix_eval_watch_open", "eval_watch", ["job_id"], sqlite_where=where, postgresql_where=where
    )
