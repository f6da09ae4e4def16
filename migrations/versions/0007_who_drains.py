"""Whether the drain that holds a lane obeys the policy: what waits goes by it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("lane", sa.Column("scheduled", sa.Boolean(), nullable=True))
