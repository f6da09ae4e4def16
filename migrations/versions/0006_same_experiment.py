"""The newest runs of one experiment, along an index; without it each look read every success."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    done = sa.text("state = 'succeeded'")
    op.create_index(
        "ix_job_same_done", "job", ["config_hash", "id"], sqlite_where=done, postgresql_where=done
    )
