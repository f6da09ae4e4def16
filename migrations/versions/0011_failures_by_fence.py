"""Failures in a row are counted by the lane's fence, no more by clocks that may be wrong."""

import sqlalchemy as sa
from alembic import op

revision = "0011_failures_by_fence"
down_revision = "0010_first_release"
branch_labels = None
depends_on = None


def upgrade() -> None:
    fence = sa.Column("armed_at_fence", sa.Integer(), nullable=False, server_default="0")
    op.add_column("policy", fence)
    # What had ended when it was armed, by the clock of then: the best that a policy of before has.
    op.execute(
        "UPDATE policy SET armed_at_fence = coalesce((SELECT max(fence) FROM attempt "
        "WHERE attempt.lane = policy.lane AND attempt.ended_at < policy.changed_at), 0)"
    )
    op.create_index("ix_attempt_fence", "attempt", ["lane", "fence"])
