"""The tables of the first release.

Databases of before it bear the versions 0001 to 0009, of which nothing leads here.

An audit row counts and announces itself, and so does a lane that changes its holder or its job: by
triggers of `job_event` and of `lane`. A migration that builds one of these tables anew makes its
trigger again: SQLite drops it with its table.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010_first_release"
down_revision = None
branch_labels = None
depends_on = None

STATES = ("queued", "running", "succeeded", "failed", "cancelled", "aborted")

_RECORDED = """
    UPDATE state_count SET n = n - 1 WHERE state = NEW.from_state;
    UPDATE state_count SET n = n + 1 WHERE state = NEW.to_state;
    INSERT INTO change (topic, job_id) VALUES ('job', NEW.job_id), ('board', NEW.job_id);
"""
_ANNOUNCED = "INSERT INTO change (topic, job_id) VALUES ('lane', NEW.job_id);"
_TRIGGERS = (
    ("job_event_recorded", "AFTER INSERT ON job_event", _RECORDED),
    ("lane_announced", "AFTER UPDATE OF holder, job_id ON lane", _ANNOUNCED),
)


def upgrade() -> None:
    _jobs()
    _beside_jobs()
    _measured()
    _lanes()
    for name, when, body in _TRIGGERS:
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"CREATE TRIGGER {name} {when} BEGIN {body} END")
            continue
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body} RETURN NEW; END $$"
        )
        op.execute(f"CREATE TRIGGER {name} {when} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _key(name: str, kind: Any, *more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, primary_key=True)


def _must(name: str, kind: Any, *more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, nullable=False)


def _may(name: str, kind: Any, *more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, nullable=True)


def _partial(name: str, columns: list[str | sa.TextClause], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "job", columns, sqlite_where=condition, postgresql_where=condition)


def _jobs() -> None:
    op.create_table(
        "sweep",
        _key("id", sa.Integer()),
        _must("kind", sa.String()),
        _must("name", sa.String()),
        _must("axes", sa.JSON()),
        _must("created_at", sa.Float()),
        _must("created_by", sa.String()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "job",
        _key("id", sa.Integer()),
        _must("kind", sa.String()),
        _must("name", sa.String()),
        _must("state", sa.String()),
        _must("config", sa.JSON()),
        _must("created_at", sa.Float()),
        _must("created_by", sa.String()),
        _may("clone_of", sa.Integer(), sa.ForeignKey("job.id")),
        _may("sweep_id", sa.Integer(), sa.ForeignKey("sweep.id")),
        _may("sweep_point", sa.JSON()),
        _may("config_hash", sa.String()),
        _may("data_hash", sa.String()),
        sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("rank", sa.Float(), nullable=False, server_default="0"),
        _may("not_before", sa.Float()),
        _may("defer_reason", sa.String()),
        _may("defer_detail", sa.Text()),
        _may("next_eligible_at", sa.Float()),
        sa.Column("followers", sa.Integer(), nullable=False, server_default="0"),
        _may("stop_requested", sa.String()),
        _may("pruned_at", sa.Float()),
        _may("started_at", sa.Float()),
        _may("attempt_started_at", sa.Float()),
        _may("started_beat", sa.Float()),
        _may("finished_at", sa.Float()),
        _may("heartbeat_at", sa.Float()),
        _may("beat", sa.Float()),
        _must("attempt", sa.Integer()),
        _must("fence", sa.Integer()),
        _may("lane", sa.String()),
        _may("engine", sa.String()),
        _must("rescues", sa.Integer()),
        _must("oom_deferred", sa.Integer()),
        _must("ingested_seq", sa.Integer()),
        _must("ingested_offset", sa.Integer()),
        _must("result", sa.JSON()),
        _may("cause", sa.String()),
        _may("error", sa.Text()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_state_id", "job", ["state", "id"])
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
    _partial("ix_job_sweep", ["sweep_id", "id"], "sweep_id IS NOT NULL")
    _partial("ix_job_kind_done", ["kind", "id"], "state = 'succeeded'")
    _partial("ix_job_same_done", ["config_hash", "id"], "state = 'succeeded'")
    counts = op.create_table(
        "state_count",
        _key("state", sa.String()),
        _must("n", sa.Integer()),
    )
    op.bulk_insert(counts, [{"state": state, "n": 0} for state in STATES])


def _beside_jobs() -> None:
    op.create_table(
        "attempt",
        _key("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _key("n", sa.Integer()),
        _must("fence", sa.Integer()),
        _may("lane", sa.String()),
        _must("started_at", sa.Float()),
        _must("ended_at", sa.Float()),
        _must("seconds", sa.Float()),
        _must("outcome", sa.String()),
        _may("cause", sa.String()),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attempt_ended_at", "attempt", ["lane", "ended_at"])
    op.create_table(
        "job_tag",
        _key("tag", sa.String()),
        _key("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_job_tag_job_id", "job_tag", ["job_id"])
    op.create_table(
        "dependency",
        _key("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _key("parent_id", sa.Integer(), sa.ForeignKey("job.id")),
        _must("if_failed", sa.String()),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_dependency_parent_id", "dependency", ["parent_id"])
    op.create_table(
        "idempotency",
        _key("key", sa.String()),
        _must("body_hash", sa.String()),
        _may("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _may("sweep_id", sa.Integer(), sa.ForeignKey("sweep.id")),
        _must("created_at", sa.Float()),
    )
    op.create_table(
        "queue_pause",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        _must("at", sa.Float()),
        _must("actor", sa.String()),
        _must("why", sa.Text()),
    )
    op.create_table(
        "job_event",
        _key("id", sa.Integer()),
        _must("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _must("at", sa.Float()),
        _must("actor", sa.String()),
        _may("from_state", sa.String()),
        _must("to_state", sa.String()),
        _must("why", sa.Text()),
    )
    op.create_index("ix_job_event_job_id", "job_event", ["job_id", "id"])
    op.create_table(
        "change",
        _key("id", sa.Integer()),
        _must("topic", sa.String()),
        _may("job_id", sa.Integer()),
    )


def _measured() -> None:
    op.create_table(
        "metric",
        _key("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _key("series", sa.String()),
        _key("step", sa.Integer()),
        _must("attempt", sa.Integer()),
        _must("value", sa.Float()),
        _may("at", sa.Float()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metric_rollup",
        _key("job_id", sa.Integer()),
        _key("size", sa.Integer()),
        _key("series", sa.String()),
        _key("bucket", sa.Integer()),
        _must("n", sa.Integer()),
        _must("total", sa.Float()),
        _must("low", sa.Float()),
        _must("high", sa.Float()),
        _must("first_step", sa.Integer()),
        _must("first", sa.Float()),
        _may("first_at", sa.Float()),
        _must("last_step", sa.Integer()),
        _must("last", sa.Float()),
        _may("last_at", sa.Float()),
        sqlite_with_rowid=False,
    )


def _lanes() -> None:
    op.create_table(
        "lane",
        _key("name", sa.String()),
        _must("fence", sa.Integer()),
        _may("holder", sa.String()),
        _may("scheduled", sa.Boolean()),
        _may("job_id", sa.Integer()),
        _may("since", sa.Float()),
        _may("heartbeat_at", sa.Float()),
        _may("beat", sa.Float()),
    )
    op.create_table(
        "policy",
        _key("lane", sa.String()),
        _must("armed", sa.Boolean()),
        _must("changed_at", sa.Float()),
        _must("changed_by", sa.String()),
        _must("interval_min", sa.Float()),
        _may("window", sa.String()),
        _may("days", sa.String()),
        _must("zone", sa.String()),
        _may("cap_usd", sa.Float()),
        _may("cap_gpu_hours", sa.Float()),
        _may("max_failures", sa.Integer()),
        _may("expires_at", sa.Float()),
        _may("cron_line", sa.String()),
    )
    op.create_table(
        "lane_event",
        _key("id", sa.Integer()),
        _must("at", sa.Float()),
        _must("lane", sa.String()),
        _may("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _must("actor", sa.String()),
        _must("what", sa.String()),
        _may("rule", sa.String()),
        _must("detail", sa.Text()),
        _must("numbers", sa.JSON()),
    )
    op.create_index("ix_lane_event_lane_at", "lane_event", ["lane", "at"])
    op.create_index("ix_lane_event_job_id", "lane_event", ["job_id", "id"])
    op.create_table(
        "ledger",
        _key("id", sa.Integer()),
        _must("at", sa.Float()),
        _must("day", sa.String()),
        _may("lane", sa.String()),
        _may("job_id", sa.Integer(), sa.ForeignKey("job.id")),
        _may("attempt", sa.Integer()),
        _must("entry", sa.String()),
        _must("seconds", sa.Float()),
        _must("usd", sa.Float()),
        _may("joules", sa.Float()),
        _must("price_usd_h", sa.Float()),
        _must("actor", sa.String()),
        _must("note", sa.Text()),
    )
    op.create_index("ix_ledger_day", "ledger", ["day", "lane"])
    op.create_index("ix_ledger_attempt", "ledger", ["job_id", "attempt"])
    op.create_table(
        "lane_price",
        _key("lane", sa.String()),
        _must("usd_h", sa.Float()),
        _must("changed_at", sa.Float()),
        _must("changed_by", sa.String()),
    )
    op.create_table(
        "resident",
        _key("lane", sa.String()),
        _must("owed", sa.Boolean()),
        _may("since", sa.Float()),
        _may("by", sa.String()),
        _may("returned_gb", sa.Float()),
    )
    op.create_table(
        "report_snapshot",
        _key("lane", sa.String()),
        _key("day", sa.String()),
        _must("made_at", sa.Float()),
        _must("sha256", sa.String()),
        _must("body", sa.JSON()),
    )
