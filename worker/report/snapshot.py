"""The snapshot (immutable record): a night's report as it was when the night was over.

Made once, by whoever asks first after the night's end, and read ever after: later prunings, retries
and corrected settings change nothing in it. Its hash is of the body as canonical JSON.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from worker.clock.night import night_at, night_of
from worker.clock.window import EARLIEST, local_day
from worker.db.connection import Database
from worker.db.tables import report_snapshot
from worker.db.zone import zone_of
from worker.report.standup import Report, build


class SnapshotError(NightlaneError):
    """A snapshot that is not what it was when it was made."""

    def __init__(self, day: str) -> None:
        self.day = day
        super().__init__(
            f"the report of {day} was changed after it was made (its hash does not fit); "
            "bring the database back from a backup"
        )


def report_of(db: Database, day: datetime.date | None, now: float) -> Report:
    """The report of a morning, today's by default; a night that is over is kept as it is.

    Raises SnapshotError, and ConfigError for a morning that nobody can have a report of.
    """
    with db.read() as conn:
        zone = zone_of(conn, db.settings.lane)
        day = day or local_day(now, zone)
        _refuse_absurd(day, local_day(now, zone))
        kept = _kept(conn, db.settings.lane, day)
    if kept is not None:
        return _checked(kept)
    night = night_of(day, zone)
    report = build(db, night, now)
    return _keep(db, report) if night.over(now) else report


def seal_of(db: Database, report: Report) -> str | None:
    """The hash under which a night is kept; None while it is not.

    Not to be had from the report again: one of an older version fills in what it did not know.
    """
    with db.read() as conn:
        kept = _kept(conn, report.lane, report.day)
    return None if kept is None else str(kept.sha256)


def latest_morning(db: Database, now: float) -> datetime.date:
    """The morning of the night that runs: today's before noon, tomorrow's after it."""
    with db.read() as conn:
        return night_at(now, zone_of(conn, db.settings.lane)).day


def _refuse_absurd(day: datetime.date, today: datetime.date) -> None:
    """The running night is tomorrow's; what lies further ahead has not begun."""
    if not EARLIEST <= day <= today + datetime.timedelta(days=1):
        remedy = f"give a morning from {EARLIEST} to tomorrow"
        raise ConfigError([ConfigProblem("date", str(day), "has no night to report", remedy)])


def digest_of(body: dict[str, Any]) -> str:
    """SHA-256 of a report's body."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _keep(db: Database, report: Report) -> Report:
    """Write it, unless somebody was faster; what stands counts."""
    body = report.model_dump(mode="json")
    with db.write_tx() as conn:
        kept = _kept(conn, report.lane, report.day)
        if kept is not None:
            return _checked(kept)
        conn.execute(
            insert(report_snapshot).values(
                lane=report.lane,
                day=report.day.isoformat(),
                made_at=report.made_at,
                sha256=digest_of(body),
                body=body,
            )
        )
    return report


def _kept(conn: Connection, lane: str, day: datetime.date) -> Row[Any] | None:
    statement = select(report_snapshot).where(
        report_snapshot.c.lane == lane, report_snapshot.c.day == day.isoformat()
    )
    return conn.execute(statement).one_or_none()


def _checked(kept: Row[Any]) -> Report:
    if digest_of(kept.body) != kept.sha256:
        raise SnapshotError(kept.day)
    return Report.model_validate(kept.body)
