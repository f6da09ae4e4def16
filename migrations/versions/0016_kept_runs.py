"""What people keep about runs: a note, whether they are put away or deleted, views by name."""

import sqlalchemy as sa
from alembic import op

revision = "0016_kept_runs"
down_revision = "0015_eval_watch"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("note", sa.Text()))
    op.add_column("job", sa.Column("archived_at", sa.Float()))
    op.add_column("job", sa.Column("deleted_at", sa.Float()))
    op.create_table(
        "run_view",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
    )
