"""What can go wrong on this machine before a night: one finding for each thing worth a look.

Looks, and creates nothing; an older database is brought forward, as by every command. Knows no
job.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select, text

from engine.contract.known import real
from engine.contract.paths import broken_link
from worker.attempt.ingest import SILENT_SINCE
from worker.db import dialects
from worker.db.connection import Database, DatabaseError, open_database, shown, url_of
from worker.db.tables import DEFERRED, job, lane
from worker.lane import cgroup
from worker.lane.machine_lock import keeper_elsewhere
from worker.lane.process_id import ProcessIdentity
from worker.private import NotPrivateError, open_to_others
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.read.served_version import version_of
from worker.read.volatile import volatile
from worker.settings import WorkerSettings

ROOM_GB = 5.0
"""Free disk under which a night's checkpoints may not fit."""


_FAILED_LOOKED_AT = 100
"""Newest failed jobs among which those that could not begin are looked for."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    """Something is missing that only some jobs need, or stands where it may not stay."""
    RISK = "risk"
    """Work can be lost or stand still."""


class Finding(BaseModel):
    """One thing that was looked at."""

    model_config = ConfigDict(frozen=True)

    name: str
    level: Level
    detail: str
    """What was found, and where it is not well, what to do."""


def diagnose(settings: WorkerSettings) -> list[Finding]:
    """Everything that is looked at, in an order that a person reads."""
    findings = [_data_directory(settings), *_volatile(settings), *_disks(settings)]
    findings += _sqlite(settings)
    try:
        findings += _database(settings)
    except DatabaseError as error:
        findings.append(_found("database", Level.RISK, str(error)))
    except OSError as error:
        detail = f"{error.filename} cannot be looked at: {error.strerror}; give this user access"
        findings.append(_found("database", Level.RISK, detail))
    return [*findings, *_programs()]


def _data_directory(settings: WorkerSettings) -> Finding:
    path = settings.data_dir
    try:
        risk = _risk_of(path)
        there = path.exists()
    except OSError as error:
        risk = f"{path} cannot be looked at: {error.strerror}; {_ELSEWHERE}"
        there = False
    if risk is not None:
        return _found("data directory", Level.RISK, risk)
    return _found("data directory", Level.OK, str(path) if there else f"{path} (not made yet)")


_ELSEWHERE = "set NIGHTLANE_DATA_DIR to another place"


def _risk_of(path: Path) -> str | None:
    """What is wrong with a data directory, and the way out. Raises OSError."""
    if (broken := broken_link(path)) is not None:
        return f"{broken}; mount its disk, or {_ELSEWHERE}"
    if not path.exists():
        return None
    if not path.is_dir():
        return f"{path} is no directory; {_ELSEWHERE}"
    if not _writable(path):
        return f"{path} cannot be written by this user; give it write access, or {_ELSEWHERE}"
    mode = open_to_others(path)
    return str(NotPrivateError(path, mode)) if mode is not None else None


def _volatile(settings: WorkerSettings) -> Iterator[Finding]:
    """What a restart would take away."""
    places = {
        "data directory": (settings.data_dir, _ELSEWHERE),
        "run directories": (settings.runs_dir, "set NIGHTLANE_WORK_DIR to another place"),
        "environment": (Path(sys.prefix), "install Nightlane in another place"),
    }
    for name, (place, remedy) in places.items():
        inside = name == "run directories" and place.is_relative_to(settings.data_dir)
        try:
            why = None if inside else volatile(place)
        except (OSError, RuntimeError):
            continue  # said where the place itself is looked at
        if why is not None:
            yield _found(f"{name} may not stay", Level.NOTE, f"{why}; {remedy}")


def _writable(path: Path) -> bool:
    """Whether files in a directory, or a file itself, can be changed by this user."""
    return os.access(path, os.W_OK | os.X_OK if path.is_dir() else os.W_OK)


def _disks(settings: WorkerSettings) -> Iterator[Finding]:
    """That of the data directory, and that of the run directories where it is another one."""
    yield _disk("disk", settings.data_dir)
    if (broken := broken_link(settings.runs_dir)) and not broken_link(settings.data_dir):
        remedy = "mount its disk, or set NIGHTLANE_WORK_DIR to another place"
        yield _found("run directories", Level.RISK, f"{broken}; {remedy}")
    if _device(settings.runs_dir) != _device(settings.data_dir):
        yield _disk("disk of the runs", settings.runs_dir)


def _standing(place: Path) -> Path:
    """The nearest directory above that exists. Raises OSError where that cannot be told."""
    while not place.exists():
        place = place.parent
    return place


def _device(place: Path) -> int | None:
    try:
        return _standing(place).stat().st_dev
    except OSError:
        return None


def _disk(name: str, place: Path) -> Finding:
    try:
        place = _standing(place)
        free_gb = shutil.disk_usage(place).free / 1e9
    except OSError as error:
        detail = f"{place} cannot be looked at: {error.strerror}; give this user access"
        return _found(name, Level.RISK, detail)
    if free_gb < ROOM_GB:
        detail = f"{free_gb:.1f} GB free at {place}; make room, or run: cockpit prune"
        return _found(name, Level.RISK, detail)
    return _found(name, Level.OK, f"{free_gb:.1f} GB free")


def _sqlite(settings: WorkerSettings) -> Iterator[Finding]:
    if not dialects.is_sqlite(url_of(settings)):
        return
    module = dialects.sqlite_module()
    risky = dialects.risky_sqlite()
    if risky is None:
        yield _found("sqlite", Level.OK, f"{module.sqlite_version} ({module.__name__})")
        return
    safe = ".".join(map(str, dialects.SAFE_SQLITE))
    yield _found(
        "sqlite",
        Level.RISK,
        f"{risky} ({module.__name__}) can lose pages of a WAL database that several programs "
        f"write (fixed in {safe}); run: pip install 'pysqlite3>=0.6.1'",
    )


def _database(settings: WorkerSettings) -> list[Finding]:
    url = url_of(settings)
    if dialects.is_sqlite(url) and not Path(str(url.database)).exists():
        return [_found("database", Level.OK, f"{shown(settings)} (not made yet)")]
    with closing(open_database(settings)) as db:
        jobs = [*_stale(db), *_silent(db), *_put_aside(db), *_pins(db)]
        return [_integrity(db), _lane(db), *jobs]


def _integrity(db: Database) -> Finding:
    name = shown(db.settings)
    if db.dialect != "sqlite":
        with db.read() as conn:
            version = conn.exec_driver_sql("SHOW server_version").scalar_one()
        return _found("database", Level.OK, f"{name}, PostgreSQL {version}")
    with db.read() as conn:
        found = conn.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
    if found != ["ok"]:
        remedy = "keep a copy, then bring a backup back with: cockpit db restore FILE"
        return _found("database", Level.RISK, f"{name} is damaged: {found[0]}; {remedy}")
    if not _writable(Path(name)):
        detail = f"{name} cannot be written by this user, so no job can run; give it write access"
        return _found("database", Level.RISK, detail)
    return _found("database", Level.OK, f"{name}, whole")


def _lane(db: Database) -> Finding:
    settings = db.settings
    with db.read() as conn:
        row = conn.execute(select(lane).where(lane.c.name == settings.lane)).one_or_none()
    if row is None or row.holder is None:
        keeper = keeper_elsewhere(settings)
        now = "is free" if keeper is None else f"is held by {keeper}"
        return _found("lane", Level.OK, f'"{settings.lane}" {now}')
    holder = ProcessIdentity.parse(row.holder)
    what = f"job {row.job_id}" if row.job_id else "no job"
    held = f'"{settings.lane}" is held by process {holder.pid}, which runs {what}'
    if not holder.alive():
        remedy = "it is dead; the next drain settles what it left: cockpit drain"
        return _found("lane", Level.RISK, f"{held}; {remedy}")
    silent_s = time.monotonic() - row.beat
    if silent_s > settings.lease_s:
        remedy = "the next drain kills it and goes on: cockpit drain"
        return _found("lane", Level.RISK, f"{held} and is silent for {silent_s:.0f} s; {remedy}")
    return _found("lane", Level.OK, held)


def _stale(db: Database) -> Iterator[Finding]:
    """A job that says it runs, with nobody behind it: whatever waits for it waits for ever."""
    running = select(job.c.id, job.c.lane, lane.c.heartbeat_at.label("beat"), lane.c.holder)
    running = running.join(lane, lane.c.name == job.c.lane, isouter=True)
    with db.read() as conn:
        rows = conn.execute(running.where(job.c.state == State.RUNNING).order_by(job.c.id)).all()
    for row in rows:
        silent_s = time.time() - row.beat if row.holder is not None else None
        if silent_s is None or silent_s > db.settings.lease_s:
            detail = (
                f'job {row.id} says running, and no drain looks after it on lane "{row.lane}"; '
                "the next drain of that lane settles it: cockpit drain"
            )
            yield _found("stale job", Level.RISK, detail)


def _silent(db: Database) -> Iterator[Finding]:
    """A run of which no event comes any more, though its supervisor is well."""
    since = job.c.result[SILENT_SINCE].label("since")
    silent = select(job.c.id, job.c.result["phase"].label("phase"), since)
    with db.read() as conn:
        rows = conn.execute(silent.where(job.c.state == State.RUNNING).order_by(job.c.id)).all()
    for row in rows:
        last = real(row.since)
        if last is not None:
            ago_s = max(0.0, time.time() - last)
            moment = datetime.fromtimestamp(last, UTC).isoformat(timespec="seconds")
            detail = (
                f"SILENT: job {row.id} has written no event since {moment} ({ago_s / 60:.0f} min, "
                f"phase {row.phase or 'none'}); it is ended by itself, to resume; sooner with: "
                f"cockpit requeue {row.id}"
            )
            yield _found("silent job", Level.RISK, detail)


def _put_aside(db: Database) -> Iterator[Finding]:
    """Jobs that cannot begin, and those that were given up for it."""
    waiting = select(job.c.id, job.c.defer_detail.label("why")).where(
        text(DEFERRED), job.c.defer_reason == Reason.CANNOT_BEGIN
    )
    newest = (
        select(job.c.id)
        .where(job.c.state == State.FAILED)
        .order_by(job.c.id.desc())
        .limit(_FAILED_LOOKED_AT)
    )
    given_up = select(job.c.id, job.c.error.label("why")).where(
        job.c.id.in_(newest), job.c.cause == Reason.CANNOT_BEGIN
    )
    with db.read() as conn:
        for row in conn.execute(waiting).all():
            detail = f"job {row.id} cannot begin: {row.why}"
            yield _found("job put aside", Level.RISK, detail)
        for row in conn.execute(given_up).all():
            detail = f"job {row.id} could not begin: {row.why}: cockpit retry {row.id}"
            yield _found("job put aside", Level.RISK, detail)


def _pins(db: Database) -> Iterator[Finding]:
    """Jobs that wait for another vLLM than the one that is here: their runs would be refused."""
    program = db.settings.serving_program
    found = version_of(program)
    if found is None:
        return
    pin = job.c.config["vllm_pin"].as_string()
    waiting = select(job.c.id, pin.label("pin")).where(
        job.c.state == State.QUEUED, pin.is_not(None)
    )
    with db.read() as conn:
        rows = conn.execute(waiting.order_by(job.c.id)).all()
    for row in rows:
        # A build mark counts only where the pin has one.
        if row.pin not in {found, found.partition("+")[0]}:
            detail = (
                f"job {row.id} pins vLLM {row.pin}, and {program} is {found}; install that one, or "
                f"set vllm_pin: {found}"
            )
            yield _found("vllm", Level.RISK, detail)


def _programs() -> Iterator[Finding]:
    """Looked for, not started and not imported."""
    box = shutil.which("bwrap")
    remedy = "not found: rewards that run code refuse to start; run: apt-get install bubblewrap"
    yield _found("bubblewrap", Level.OK if box else Level.NOTE, box or remedy)
    group = cgroup.available()
    remedy = (
        "none can be made here: what an engine starts and hides (environment and output cleared) "
        "outlives a drain that is killed; the next drain says so. Run drains as root, or in a "
        "delegated group: systemd-run --user --scope -p Delegate=yes cockpit drain"
    )
    yield _found("control group", Level.OK if group else Level.NOTE, str(group or remedy))
    engine = find_spec("torch") is not None
    missing = "torch is not installed: nothing trains here; run: pip install 'nightlane[engine]'"
    yield _found("engine", Level.OK if engine else Level.NOTE, "installed" if engine else missing)


def _found(name: str, level: Level, detail: str) -> Finding:
    return Finding(name=name, level=level, detail=detail)
