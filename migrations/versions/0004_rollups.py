"""Rollups: what a chart of any length reads; the moment of each measured value."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SIZES = (8, 32, 128, 512, 4096)


def upgrade() -> None:
    op.add_column("metric", sa.Column("at", sa.Float(), nullable=True))
    op.create_table(
        "metric_rollup",
        sa.Column("job_id", sa.Integer(), primary_key=True),
        sa.Column("size", sa.Integer(), primary_key=True),
        sa.Column("series", sa.String(), primary_key=True),
        sa.Column("bucket", sa.Integer(), primary_key=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("low", sa.Float(), nullable=False),
        sa.Column("high", sa.Float(), nullable=False),
        sa.Column("first_step", sa.Integer(), nullable=False),
        sa.Column("first", sa.Float(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=True),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("last", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=True),
        sqlite_with_rowid=False,
    )
    for size in _SIZES:
        op.execute(
            f"""
            INSERT INTO metric_rollup (job_id, series, size, bucket, n, total, low, high,
                   first_step, first, first_at, last_step, last, last_at)
            SELECT g.job_id, g.series, {size}, g.bucket, g.n, g.total, g.low, g.high,
                   g.first_step,
                   (SELECT value FROM metric AS f WHERE f.job_id = g.job_id
                    AND f.series = g.series AND f.step = g.first_step), NULL,
                   g.last_step,
                   (SELECT value FROM metric AS l WHERE l.job_id = g.job_id
                    AND l.series = g.series AND l.step = g.last_step), NULL
            FROM (SELECT job_id, series, step / {size} AS bucket, count(*) AS n,
                         sum(value) AS total, min(value) AS low, max(value) AS high,
                         min(step) AS first_step, max(step) AS last_step
                  FROM metric GROUP BY job_id, series, step / {size}) AS g
            """  # noqa: S608 - a number of this file
        )
