"""The tables. The classes declare them; statements are written against the Core tables below.

Times are Unix seconds in UTC, but for `lane.beat`. Knows no rule about who may write what.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, Table, Text
from sqlmodel import Field, SQLModel


class Job(SQLModel, table=True):
    """The queue, and the live result of each job."""

    __table_args__ = (Index("ix_job_state_id", "state", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    name: str
    state: str
    config: dict[str, Any] = Field(sa_type=JSON)
    """Resolved: every default written out."""
    created_at: float
    created_by: str
    started_at: float | None = None
    """First claim of all attempts."""
    finished_at: float | None = None
    heartbeat_at: float | None = None

    attempt: int = 0
    fence: int = 0
    """The lane's fence under which the attempt may write."""
    lane: str | None = None
    """Where it runs; null while it does not."""
    engine: str | None = None
    """Identity of the engine process (see worker.lane.identity)."""
    rescues: int = 0
    """Attempts lost to a dead supervisor or machine."""
    oom_deferred: int = 0
    """Attempts stopped by the memory watchdog."""

    ingested_seq: int = 0
    """The last event folded into `result` and `metric`."""
    ingested_offset: int = 0
    """Its end in events.jsonl, in bytes."""
    result: dict[str, Any] = Field(sa_type=JSON)
    """A fold over the events; rebuilt from them at will."""
    cause: str | None = None
    """One word for machines, when the job did not succeed."""
    error: str | None = Field(default=None, sa_type=Text)
    """One sentence for people."""


class JobEvent(SQLModel, table=True):
    """The audit: who moved a job, when and why."""

    __tablename__ = "job_event"
    __table_args__ = (Index("ix_job_event_job_id", "job_id", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: int = Field(foreign_key="job.id")
    at: float
    actor: str
    from_state: str | None = None
    to_state: str
    why: str = Field(sa_type=Text)


class Metric(SQLModel, table=True):
    """One measured value: a job has at most one for each series and step."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    series: str = Field(primary_key=True)
    step: int = Field(primary_key=True)
    attempt: int
    value: float


class Change(SQLModel, table=True):
    """What the live stream replays from an id on."""

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int | None = Field(default=None, primary_key=True)
    topic: str
    job_id: int | None = None


class Lane(SQLModel, table=True):
    """The lease of one lane. The fence only grows; whoever holds an older one writes nothing."""

    name: str = Field(primary_key=True)
    fence: int = 0
    holder: str | None = None
    """Identity of the drain that holds it; null when it is free."""
    job_id: int | None = None
    since: float | None = None
    heartbeat_at: float | None = None
    beat: float | None = None
    """The heartbeat on the boot's monotonic clock: a corrected wall clock expires no lease."""


class StateCount(SQLModel, table=True):
    """How many jobs are in each state, kept with every transition: history is never counted."""

    __tablename__ = "state_count"

    state: str = Field(primary_key=True)
    n: int = 0


_tables = SQLModel.metadata.tables
job: Table = _tables["job"]
job_event: Table = _tables["job_event"]
metric: Table = _tables["metric"]
change: Table = _tables["change"]
lane: Table = _tables["lane"]
state_count: Table = _tables["state_count"]
