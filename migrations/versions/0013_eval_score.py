"""What checkpoints scored on benches. Jobs of before come in with `cockpit reindex JOB`."""

import sqlalchemy as sa
from alembic import op

revision = "0013_eval_score"
down_revision = "0012_same_waiting"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "eval_score",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in _WHOLE),
        *(sa.Column(name, sa.String(), nullable=False) for name in _WORDS),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("score", "low", "high")),
        *(sa.Column(name, sa.Float()) for name in ("at", "truncated", "unparsed")),
        *(sa.Column(name, sa.String()) for name in ("bench_hash", "data_hash")),
        sa.Column("path", sa.Text()),
        sa.Column("run", sa.Integer()),
        sa.Column("picked", sa.Boolean(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
    )
    for name, columns in _INDEXES.items():
        op.create_index(f"ix_eval_score_{name}", "eval_score", columns)


_WHOLE = ("job_step", "step", "shots", "k", "n")
_WORDS = (
    *("measure", "model", "checkpoint", "base"),
    *("bench", "split", "filter", "metric", "runner"),
)
_INDEXES = {
    "measure": ["measure", "score", "job_id", "model"],
    "bench": ["bench", "measure", "shots", "filter", "job_id"],
    "model": ["model", "measure", "job_id"],
    "run": ["run", "step"],
}
