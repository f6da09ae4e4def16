"""Who may come in: tokens, sign-ins of browsers and addresses that work once, each as a hash."""

import sqlalchemy as sa
from alembic import op

revision = "0017_door_tokens"
down_revision = "0016_kept_runs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "door_token",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("last_used_at", sa.Float()),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("user_id", sa.Integer()),
    )
    op.create_index("ix_door_token_digest", "door_token", ["digest"], unique=True)
