"""The queue's semantics: order, deferrals, dependencies, tags, sweeps, keys, pause, attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NEW_COLUMNS = (
    sa.Column("sweep_point", sa.JSON(none_as_null=True), nullable=True),
    sa.Column("config_hash", sa.String(), nullable=True),
    sa.Column("data_hash", sa.String(), nullable=True),
    sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("rank", sa.Float(), nullable=False, server_default="0"),
    sa.Column("not_before", sa.Float(), nullable=True),
    sa.Column("defer_reason", sa.String(), nullable=True),
    sa.Column("defer_detail", sa.Text(), nullable=True),
    sa.Column("next_eligible_at", sa.Float(), nullable=True),
    sa.Column("followers", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("stop_requested", sa.String(), nullable=True),
    sa.Column("pruned_at", sa.Float(), nullable=True),
    sa.Column("attempt_started_at", sa.Float(), nullable=True),
    sa.Column("started_beat", sa.Float(), nullable=True),
    sa.Column("beat", sa.Float(), nullable=True),
)


def _partial(name: str, columns: list[str | sa.TextClause], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "job", columns, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    op.create_table(
        "sweep",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("axes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sqlite_autoincrement=True,
    )
    for column in NEW_COLUMNS:
        op.add_column("job", column)
    # In SQL: SQLite takes a reference only together with its column, and Alembic writes two steps.
    op.execute("ALTER TABLE job ADD COLUMN clone_of INTEGER REFERENCES job(id)")
    op.execute("ALTER TABLE job ADD COLUMN sweep_id INTEGER REFERENCES sweep(id)")
    op.execute("UPDATE job SET rank = id, attempt_started_at = started_at")
    _partial(
        "ix_job_claim",
        ["state", sa.text("priority DESC"), "rank", "id"],
        "state = 'queued' AND defer_reason IS NULL",
    )
    _partial(
        "ix_job_deferred",
        ["state", "next_eligible_at", "id"],
        "state = 'queued' AND defer_reason IS NOT NULL",
    )
    _partial("ix_job_tried", ["config_hash", "data_hash"], "state = 'succeeded'")
    _partial("ix_job_sweep", ["sweep_id", "id"], "sweep_id IS NOT NULL")
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lane", sa.String(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=True),
    )
    op.create_table(
        "job_tag",
        sa.Column("tag", sa.String(), primary_key=True),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_job_tag_job_id", "job_tag", ["job_id"])
    op.create_table(
        "dependency",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("parent_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("if_failed", sa.String(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_dependency_parent_id", "dependency", ["parent_id"])
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), nullable=True),
        sa.Column("sweep_id", sa.Integer(), sa.ForeignKey("sweep.id"), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "queue_pause",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
    )
