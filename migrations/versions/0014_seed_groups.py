"""Runs that differ in their seed alone are found by a hash. Jobs queued before are in no group."""

import sqlalchemy as sa
from alembic import op

revision = "0014_seed_groups"
down_revision = "0013_eval_score"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("group_hash", sa.String(), nullable=True))
    where = sa.text("group_hash IS NOT NULL")
    op.create_index(
        "ix_job_group", "job", ["group_hash", "id"], sqlite_where=where, postgresql_where=where
    )
