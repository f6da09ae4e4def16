"""The tables of a lane's autonomy: policy, decisions, ledger, resident model, and the reports.

Times are Unix seconds in UTC; a day is the date that a clock in the policy's time zone showed.
Knows no rule about who may write what.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, Table, Text, text
from sqlmodel import Field, SQLModel

from worker.db.tables import TRIED


class Policy(SQLModel, table=True):
    """What the operator allowed the lane to do by itself; one row a lane."""

    lane: str = Field(primary_key=True)
    armed: bool
    changed_at: float
    changed_by: str
    interval_min: float
    """Minutes between two ticks."""
    window: str | None = None
    """Hours in which jobs may run, `22:00-07:00`; null = all."""
    days: str | None = None
    """Weekdays on which the window begins, `mon-fri`; null = all."""
    zone: str
    """IANA name of the time zone of window and days, and of the local day of the caps."""
    cap_usd: float | None = None
    cap_gpu_hours: float | None = None
    """Both for one local day; null = no cap."""
    max_failures: int | None = None
    """Failures in a row after which scheduled drains start nothing more."""
    expires_at: float | None = None
    cron_line: str | None = None
    """The line that was put into the crontab; null = none was."""


class LaneEvent(SQLModel, table=True):
    """The audit of a lane: what was decided about it, by which rule and from which numbers."""

    __tablename__ = "lane_event"
    __table_args__ = (
        Index("ix_lane_event_lane_at", "lane", "at"),
        Index("ix_lane_event_job_id", "job_id", "id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    at: float
    lane: str
    job_id: int | None = Field(default=None, foreign_key="job.id")
    actor: str
    what: str
    """One word: armed, disarmed, defer, stop, drain, resident-stopped, …"""
    rule: str | None = None
    """The reason's word for machines."""
    detail: str = Field(sa_type=Text)
    """One sentence for people."""
    numbers: dict[str, Any] = Field(sa_type=JSON)
    """What the rule compared."""


class Ledger(SQLModel, table=True):
    """Money and lane time, append-only: first a reservation, then what was really used."""

    __table_args__ = (
        Index("ix_ledger_day", "day", "lane"),
        Index("ix_ledger_attempt", "job_id", "attempt"),
    )

    id: int | None = Field(default=None, primary_key=True)
    at: float
    day: str
    """The local day that is charged, `2026-11-21`."""
    lane: str | None = None
    """Null: spent elsewhere, and it counts for every lane."""
    job_id: int | None = Field(default=None, foreign_key="job.id")
    attempt: int | None = None
    entry: str
    """reserve (held, not spent) · meter · settle · external."""
    seconds: float
    """Of the lane."""
    usd: float
    joules: float | None = None
    """Energy that was read meanwhile; null where no counter can be read."""
    price_usd_h: float
    """The lane's price when the row was written."""
    actor: str
    note: str = Field(sa_type=Text)


class LanePrice(SQLModel, table=True):
    """What an hour of a lane costs, as a person set it; without a row the setting counts."""

    __tablename__ = "lane_price"

    lane: str = Field(primary_key=True)
    usd_h: float
    changed_at: float
    changed_by: str


class Resident(SQLModel, table=True):
    """The model that lives on the lane while no job runs, and whether somebody owes it a start."""

    lane: str = Field(primary_key=True)
    owed: bool
    """It was stopped, or is about to be: whoever holds the lane must start it again."""
    since: float | None = None
    by: str | None = None
    """The drain that stopped it."""
    returned_gb: float | None = None
    """Memory that the last stop gave back."""


class ReportSnapshot(SQLModel, table=True):
    """A morning's report as it was when its night was over. Never rewritten."""

    __tablename__ = "report_snapshot"

    lane: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    made_at: float
    sha256: str
    """Of the body as canonical JSON."""
    body: dict[str, Any] = Field(sa_type=JSON)


_tables = SQLModel.metadata.tables
policy: Table = _tables["policy"]
lane_event: Table = _tables["lane_event"]
ledger: Table = _tables["ledger"]
lane_price: Table = _tables["lane_price"]
resident: Table = _tables["resident"]
report_snapshot: Table = _tables["report_snapshot"]


# What runs of a kind, and of one experiment, took and used.
_done = text(TRIED)
for _name, _of in (("ix_job_kind_done", "kind"), ("ix_job_same_done", "config_hash")):
    Index(
        _name,
        _tables["job"].c[_of],
        _tables["job"].c.id,
        sqlite_where=_done,
        postgresql_where=_done,
    )
# What a night held, and how many failed in a row.
Index("ix_attempt_ended_at", _tables["attempt"].c.lane, _tables["attempt"].c.ended_at)
