"""An index of what waits or runs by its experiment: a second one of the same is refused."""

import sqlalchemy as sa
from alembic import op

revision = "0012_same_waiting"
down_revision = "0011_failures_by_fence"
branch_labels = None
depends_on = None


def upgrade() -> None:
    where = sa.text("state IN ('queued', 'running')")
    op.create_index(
        "ix_job_same_waiting",
        "job",
        ["config_hash", "id"],
        sqlite_where=where,
        postgresql_where=where,
    )
