"""The price of a lane's hour, as a person set it."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lane_price",
        sa.Column("lane", sa.String(), primary_key=True),
        sa.Column("usd_h", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
    )
