"""Autonomy: the policy, what was decided, the ledger, the resident model, the reports."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "policy",
        sa.Column("lane", sa.String(), primary_key=True),
        sa.Column("armed", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("interval_min", sa.Float(), nullable=False),
        sa.Column("window", sa.String(), nullable=True),
        sa.Column("days", sa.String(), nullable=True),
        sa.Column("zone", sa.String(), nullable=False),
        sa.Column("cap_usd", sa.Float(), nullable=True),
        sa.Column("cap_gpu_hours", sa.Float(), nullable=True),
        sa.Column("max_failures", sa.Integer(), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("cron_line", sa.String(), nullable=True),
    )
    op.create_table(
        "lane_event",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("lane", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("numbers", sa.JSON(), nullable=False),
    )
    op.create_index("ix_lane_event_lane_at", "lane_event", ["lane", "at"])
    op.create_index("ix_lane_event_job_id", "lane_event", ["job_id", "id"])
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("lane", sa.String(), nullable=True),
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("entry", sa.String(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=False),
        sa.Column("joules", sa.Float(), nullable=True),
        sa.Column("price_usd_h", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
    )
    op.create_index("ix_ledger_day", "ledger", ["day", "lane"])
    op.create_index("ix_ledger_attempt", "ledger", ["job_id", "attempt"])
    op.create_table(
        "resident",
        sa.Column("lane", sa.String(), primary_key=True),
        sa.Column("owed", sa.Boolean(), nullable=False),
        sa.Column("since", sa.Float(), nullable=True),
        sa.Column("by", sa.String(), nullable=True),
        sa.Column("returned_gb", sa.Float(), nullable=True),
    )
    op.create_table(
        "report_snapshot",
        sa.Column("lane", sa.String(), primary_key=True),
        sa.Column("day", sa.String(), primary_key=True),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
    )
    done = sa.text("state = 'succeeded'")
    op.create_index(
        "ix_job_kind_done", "job", ["kind", "id"], sqlite_where=done, postgresql_where=done
    )
    op.create_index("ix_attempt_ended_at", "attempt", ["lane", "ended_at"])
