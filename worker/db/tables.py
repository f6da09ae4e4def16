"""The tables. The classes declare them; statements are written against the Core tables below.

Times are Unix seconds in UTC, but for `lane.beat`. Knows no rule about who may write what.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, Table, Text, text
from sqlmodel import Field, SQLModel

CLAIMABLE = "state = 'queued' AND defer_reason IS NULL"
"""Which rows a claim chooses from. In literals, or no planner would use the partial index."""
DEFERRED = "state = 'queued' AND defer_reason IS NOT NULL"
"""Which rows must wait for something of their own."""
TRIED = "state = 'succeeded'"
"""Which rows hold a finished result."""
NOT_OVER = "state IN ('queued', 'running')"
"""Which rows will have a result."""
UNSCORED = "closed_at IS NULL"
"""Which rows may yet have a checkpoint to score."""
SWEPT = "sweep_id IS NOT NULL"
GROUPED = "group_hash IS NOT NULL"


def _partial(name: str, *columns: Any, where: str) -> Index:
    """An index over some of the rows: who wants the present does not pay for history."""
    condition = text(where)
    return Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


JSON_OR_NULL = JSON(none_as_null=True)


class Job(SQLModel, table=True):
    """The queue, and the live result of each job."""

    __table_args__ = (
        Index("ix_job_state_id", "state", "id"),
        # `state` leads, though it is one word: else SQLite takes the index above, and sorts.
        _partial("ix_job_claim", "state", text("priority DESC"), "rank", "id", where=CLAIMABLE),
        _partial("ix_job_deferred", "state", "next_eligible_at", "id", where=DEFERRED),
        _partial("ix_job_sweep", "sweep_id", "id", where=SWEPT),
        # What runs of a kind, and of one experiment, took and used.
        _partial("ix_job_kind_done", "kind", "id", where=TRIED),
        _partial("ix_job_same_done", "config_hash", "id", where=TRIED),
        _partial("ix_job_same_waiting", "config_hash", "id", where=NOT_OVER),
        _partial("ix_job_group", "group_hash", "id", where=GROUPED),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    name: str
    state: str
    config: dict[str, Any] = Field(sa_type=JSON)
    """Resolved: every default written out."""
    created_at: float
    created_by: str
    clone_of: int | None = Field(default=None, foreign_key="job.id")
    """The job that this one began from: run again as it was, or with changes."""
    sweep_id: int | None = Field(default=None, foreign_key="sweep.id")
    sweep_point: dict[str, Any] | None = Field(default=None, sa_type=JSON_OR_NULL)
    """The values that the sweep gave to this job, by dotted name."""
    config_hash: str | None = None
    """Of the kind and all settings that can change the result."""
    data_hash: str | None = None
    """Of the input files, as they were at enqueue."""
    group_hash: str | None = None
    """Of both without the seed: runs that have it in common are a seed group."""

    priority: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """Higher runs first."""
    rank: float = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """Smaller runs first inside a priority; the id, until somebody moves the job."""
    not_before: float | None = None
    defer_reason: str | None = None
    """Why a queued job must not be claimed yet, in one word; null = it may be."""
    defer_detail: str | None = Field(default=None, sa_type=Text)
    next_eligible_at: float | None = None
    """When a deferral ends by itself; null = something else must happen first."""
    followers: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How many jobs were ever told to run after this one."""
    stop_requested: str | None = None
    """What a person asked of the running attempt: cancel or requeue."""
    pruned_at: float | None = None
    """When its checkpoints, rollouts and metric rows were thrown away."""
    note: str | None = Field(default=None, sa_type=Text)
    """What a person wrote about it."""
    archived_at: float | None = None
    """When it was put away; lists of runs leave it out."""
    deleted_at: float | None = None
    """When its files and numbers were thrown away; the row stays for the audit and the ledger."""

    started_at: float | None = None
    """First claim of all attempts."""
    attempt_started_at: float | None = None
    """Claim of the newest attempt."""
    started_beat: float | None = None
    """The same on the boot's monotonic clock."""
    finished_at: float | None = None
    heartbeat_at: float | None = None
    beat: float | None = None
    """The heartbeat on the boot's monotonic clock: a corrected wall clock charges nobody."""

    attempt: int = 0
    fence: int = 0
    """The lane's fence under which the attempt may write."""
    lane: str | None = None
    """Where it runs; null while it does not."""
    engine: str | None = None
    """Identity of the engine process (see worker.lane.process_id)."""
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


class Attempt(SQLModel, table=True):
    """One ended attempt, written with its settlement; a running one is in its job's row."""

    __table_args__ = (
        # What a night held; how many failed in a row.
        Index("ix_attempt_ended_at", "lane", "ended_at"),
        Index("ix_attempt_fence", "lane", "fence"),
        {"sqlite_with_rowid": False},
    )

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    n: int = Field(primary_key=True)
    fence: int
    lane: str | None = None
    started_at: float
    ended_at: float
    """The settlement, or the last heartbeat of a supervisor that died."""
    seconds: float
    """Charged: from the claim up to there, by a clock that nobody corrects."""
    outcome: str
    """The state that its job got."""
    cause: str | None = None


class JobTag(SQLModel, table=True):
    """A word that people gave a job, to find it by."""

    __tablename__ = "job_tag"
    __table_args__ = (
        Index("ix_job_tag_job_id", "job_id"),
        {"sqlite_with_rowid": False},
    )

    tag: str = Field(primary_key=True)
    job_id: int = Field(primary_key=True, foreign_key="job.id")


class Dependency(SQLModel, table=True):
    """A job that runs after another one."""

    __table_args__ = (
        Index("ix_dependency_parent_id", "parent_id"),
        {"sqlite_with_rowid": False},
    )

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    parent_id: int = Field(primary_key=True, foreign_key="job.id")
    if_failed: str
    """What happens to the job when the parent ends without success: cancel, run or wait."""


class Sweep(SQLModel, table=True):
    """One config with lists, expanded to a job for each combination."""

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    name: str
    axes: dict[str, Any] = Field(sa_type=JSON)
    """Dotted name of a setting → its values, in the order of the document."""
    created_at: float
    created_by: str


class Idempotency(SQLModel, table=True):
    """What a caller's key brought forth, so that the same request is answered by the same job."""

    key: str = Field(primary_key=True)
    body_hash: str
    job_id: int | None = Field(default=None, foreign_key="job.id")
    sweep_id: int | None = Field(default=None, foreign_key="sweep.id")
    created_at: float


class QueuePause(SQLModel, table=True):
    """While a row stands here nothing is claimed."""

    __tablename__ = "queue_pause"

    id: int = Field(primary_key=True)
    """Always 1: a queue is paused once."""
    at: float
    actor: str
    why: str = Field(sa_type=Text)


class JobEvent(SQLModel, table=True):
    """The audit: who moved a job, when and why. A trigger counts each row in `state_count` and
    announces it in `change`; from a state to the same one it is a note, from none a creation.
    """

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
    at: float | None = None
    """When it was measured; null where the event did not say."""


class MetricRollup(SQLModel, table=True):
    """What the values of a series did within one stretch of steps."""

    __tablename__ = "metric_rollup"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: int = Field(primary_key=True)
    size: int = Field(primary_key=True)
    """Steps in the stretch (see worker.db.metrics)."""
    series: str = Field(primary_key=True)
    bucket: int = Field(primary_key=True)
    """Which stretch: its steps divided by the size, without the rest."""
    n: int
    """Values in it."""
    total: float
    """Their sum."""
    low: float
    high: float
    first_step: int
    first: float
    first_at: float | None = None
    last_step: int
    last: float
    last_at: float | None = None


class EvalScore(SQLModel, table=True):
    """What a checkpoint scored on a bench, as a job measured it (engine.contract.scores)."""

    __tablename__ = "eval_score"
    __table_args__ = (
        # One measure in its own order.
        Index("ix_eval_score_measure", "measure", "score", "job_id", "model"),
        # Which measures there are; what else a checkpoint scored; what a run's checkpoints did.
        Index("ix_eval_score_bench", "bench", "measure", "shots", "filter", "job_id"),
        Index("ix_eval_score_model", "model", "measure", "job_id"),
        Index("ix_eval_score_run", "run", "step"),
    )

    job_id: int = Field(primary_key=True, foreign_key="job.id")
    key: str = Field(primary_key=True)
    """Of what was measured: split, run, step, path, bench, shots, filter, metric, k and runner."""
    job_step: int
    """Of the job that measured it."""
    at: float | None = None
    """When; null where the event did not say."""
    measure: str
    """Bench, shots, filter, metric, k and runner on these rows: scores of one measure compare."""
    model: str
    """Which weights, whoever measured them."""
    checkpoint: str
    path: str | None = Field(default=None, sa_type=Text)
    base: str
    run: int | None = None
    """The job that trained it."""
    step: int
    """Of that run."""
    bench: str
    split: str
    shots: int
    filter: str
    metric: str
    k: int
    runner: str
    n: int
    score: float
    low: float
    high: float
    truncated: float | None = None
    unparsed: float | None = None
    picked: bool
    """These rows picked the checkpoint."""
    bench_hash: str | None = None
    data_hash: str | None = None
    body: dict[str, Any] = Field(sa_type=JSON)
    """All of it."""


class EvalWatch(SQLModel, table=True):
    """A run whose checkpoints are scored as they appear, on one list of benches."""

    __tablename__ = "eval_watch"
    __table_args__ = (
        Index("ix_eval_watch_job_id", "job_id", "asked", unique=True),
        _partial("ix_eval_watch_open", "job_id", where=UNSCORED),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: int = Field(foreign_key="job.id")
    """The run."""
    asked: str
    """Hash of the benches."""
    evaluate: dict[str, Any] = Field(sa_type=JSON)
    """Benches, how often, at which priority."""
    steps: dict[str, Any] = Field(sa_type=JSON)
    """Step → the job that scores it, and the hash of its weights."""
    created_at: float
    created_by: str
    closed_at: float | None = None
    """When nothing was left to score; null = something may yet come."""
    problem: str | None = Field(default=None, sa_type=Text)
    """Why its checkpoints are scored no more."""


class RunView(SQLModel, table=True):
    """A view of the table of runs that somebody saved."""

    __tablename__ = "run_view"

    name: str = Field(primary_key=True)
    query: str = Field(sa_type=Text)
    """The query string of its address."""
    created_at: float
    created_by: str


class Change(SQLModel, table=True):
    """What the live stream replays from an id on. The newest row is never dropped, so that ids only
    grow.
    """

    id: int | None = Field(default=None, primary_key=True)
    topic: str
    job_id: int | None = None


class Lane(SQLModel, table=True):
    """The lease of one lane. The fence only grows; whoever holds an older one writes nothing."""

    name: str = Field(primary_key=True)
    fence: int = 0
    holder: str | None = None
    """Identity of the drain that holds it; null when it is free."""
    scheduled: bool | None = None
    """Whether that drain obeys the policy (tick, cron); else a person's order."""
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


# --- a lane's autonomy: a day is the date that a clock in the policy's time zone showed ---


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
    """IANA name of the time zone of window and days, and of the days of the caps."""
    cap_usd: float | None = None
    cap_gpu_hours: float | None = None
    """Both for one day; null = no cap."""
    max_failures: int | None = None
    """Failures in a row after which scheduled drains start nothing more."""
    expires_at: float | None = None
    cron_line: str | None = None
    """The line that was put into the crontab; null = none was."""
    armed_at_fence: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """The lane's fence when it was armed: failures count from there, whatever a clock said."""


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


class DoorToken(SQLModel, table=True):
    """A token, a browser's sign-in or an address that works once. The secret itself is nowhere."""

    __tablename__ = "door_token"
    __table_args__ = (Index("ix_door_token_digest", "digest", unique=True),)

    id: int | None = Field(default=None, primary_key=True)
    digest: str
    """SHA-256 of the secret, as hexadecimal digits."""
    sort: str
    """token · browser · address."""
    scope: str
    """read · operate · admin."""
    name: str
    created_at: float
    created_by: str
    expires_at: float
    last_used_at: float | None = None
    revoked_at: float | None = None
    user_id: int | None = None
    """Of a sign-in: the user of this machine whose browser it was; null = none that is known."""


_tables = SQLModel.metadata.tables
job: Table = _tables["job"]
job_event: Table = _tables["job_event"]
job_tag: Table = _tables["job_tag"]
attempt: Table = _tables["attempt"]
dependency: Table = _tables["dependency"]
sweep: Table = _tables["sweep"]
idempotency: Table = _tables["idempotency"]
queue_pause: Table = _tables["queue_pause"]
metric: Table = _tables["metric"]
metric_rollup: Table = _tables["metric_rollup"]
eval_score: Table = _tables["eval_score"]
eval_watch: Table = _tables["eval_watch"]
run_view: Table = _tables["run_view"]
change: Table = _tables["change"]
lane: Table = _tables["lane"]
state_count: Table = _tables["state_count"]
policy: Table = _tables["policy"]
lane_event: Table = _tables["lane_event"]
ledger: Table = _tables["ledger"]
lane_price: Table = _tables["lane_price"]
resident: Table = _tables["resident"]
report_snapshot: Table = _tables["report_snapshot"]
door_token: Table = _tables["door_token"]
