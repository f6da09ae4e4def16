"""One statement for a move of a job: audit, counters and feed; and a lane that announces itself.

The statement is an INSERT into the view `job_move`. A program of before writes `job_event` itself,
and the rest beside it: one that still runs while this comes counts its moves once, as ever.
A later migration that builds `job_event`, `state_count` or `change` anew drops the view first and
makes it again with its trigger; one that builds `lane` anew makes that one's again: SQLite drops a
trigger with its table.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_RECORD = """
    INSERT INTO job_event (job_id, at, actor, from_state, to_state, why)
    VALUES (NEW.job_id, NEW.at, NEW.actor, NEW.from_state, NEW.to_state, NEW.why);
    UPDATE state_count SET n = n - 1 WHERE state = NEW.from_state;
    UPDATE state_count SET n = n + 1 WHERE state = NEW.to_state;
    INSERT INTO change (topic, job_id) VALUES ('job', NEW.job_id), ('board', NEW.job_id);
"""
_ANNOUNCE = "INSERT INTO change (topic, job_id) VALUES ('lane', NEW.job_id);"
_TRIGGERS = (
    ("job_move_recorded", "INSTEAD OF INSERT ON job_move", _RECORD),
    ("lane_announced", "AFTER UPDATE OF holder, job_id ON lane", _ANNOUNCE),
)


def upgrade() -> None:
    op.execute(
        "CREATE VIEW job_move AS SELECT job_id, at, actor, from_state, to_state, why FROM job_event"
    )
    for name, when, body in _TRIGGERS:
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"CREATE TRIGGER {name} {when} BEGIN {body} END")
            continue
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body} RETURN NEW; END $$"
        )
        op.execute(f"CREATE TRIGGER {name} {when} FOR EACH ROW EXECUTE FUNCTION {name}()")
