"""An audit row counts and announces itself, and so does a lane that changes its holder or its job.

A later migration that builds `job_event` or `lane` anew makes the trigger again: SQLite drops it
with its table.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_RECORDED = """
    UPDATE state_count SET n = n - 1 WHERE state = NEW.from_state;
    UPDATE state_count SET n = n + 1 WHERE state = NEW.to_state;
    INSERT INTO change (topic, job_id) VALUES ('job', NEW.job_id), ('board', NEW.job_id);
"""
_ANNOUNCE = "INSERT INTO change (topic, job_id) VALUES ('lane', NEW.job_id);"
_TRIGGERS = (
    ("job_event_recorded", "AFTER INSERT ON job_event", _RECORDED),
    ("lane_announced", "AFTER UPDATE OF holder, job_id ON lane", _ANNOUNCE),
)


def upgrade() -> None:
    for name, when, body in _TRIGGERS:
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"CREATE TRIGGER {name} {when} BEGIN {body} END")
            continue
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body} RETURN NEW; END $$"
        )
        op.execute(f"CREATE TRIGGER {name} {when} FOR EACH ROW EXECUTE FUNCTION {name}()")
