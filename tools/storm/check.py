"""The wreckage held against the rules: a function yields one line for each thing that is wrong."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from engine.contract.events import EventReader
from engine.contract.run_dir import RunDir
from tools.storm.kinds.squall import chain
from tools.storm.place import leftovers
from worker.attempt.reindex import reindex
from worker.db.connection import Database
from worker.db.tables import attempt, job, job_event
from worker.queue.states import State
from worker.read import jobs


def lost(db: Database, sent: Mapping[int, int], cancelled: Container[int]) -> Iterator[str]:
    """Every acknowledged job stands once, and has the result of a run without a lost step."""
    with db.read() as conn:
        rows = {row.id: row for row in conn.execute(select(job))}
    for number, job_id in sent.items():
        row = rows.pop(job_id, None)
        if row is None:
            yield f"job {job_id} (key-{number}) is lost"
        elif job_id in cancelled and row.state == State.CANCELLED and row.attempt == 0:
            continue
        elif row.state != State.SUCCEEDED:
            yield f"job {job_id} is {row.state}: {row.cause} {row.error}"
        elif row.result.get("chain") != chain(number, row.config["steps"]):
            yield f"job {job_id} lost or doubled a step: {row.result}"
    yield from (f"job {job_id} was never acknowledged, and stands" for job_id in rows)


def twice(notes: Path) -> Iterator[str]:
    """No two engines at once on the lane or on one job, by their locks and by their clocks."""
    path = notes / "intervals.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    spans: dict[tuple[str, int, int], list[float]] = {}
    for line in lines:
        if line["what"].startswith("twice"):
            yield f"job {line['job']} attempt {line['attempt']}: {line['what']}"
        spans.setdefault((line["lane"], line["job"], line["attempt"]), []).append(line["t"])
    ordered = sorted((min(times), max(times), key) for key, times in spans.items())
    for (_, end, first), (begin, _, second) in pairwise(ordered):
        if begin < end and first[0] == second[0]:
            yield f"{first} and {second} overlap by {end - begin:.3f} s"


def books(db: Database) -> Iterator[str]:
    """Attempts, audit, counters, events and projections tell the same story."""
    with db.read() as conn:
        per_state = select(job.c.state, func.count()).group_by(job.c.state)
        counted: dict[str, int] = {row.state: row[1] for row in conn.execute(per_state)}
        rows = conn.execute(select(job)).all()
        attempts = conn.execute(select(attempt).order_by(attempt.c.job_id, attempt.c.n)).all()
        audit = conn.execute(select(job_event).order_by(job_event.c.id)).all()
    kept = {str(state): n for state, n in jobs.counts(db).items() if n}
    if kept != counted:
        yield f"the counters say {kept}, the table {counted}"
    for row in rows:
        own = [one for one in attempts if one.job_id == row.id]
        moves = [one for one in audit if one.job_id == row.id]
        yield from _job_books(row, own, moves)
        yield from _events(db, row)
        if reindex(db, row.id).changed:
            yield f"job {row.id}: its result is not what its events say"


def _job_books(row: Any, attempts: list[Any], moves: list[Any]) -> Iterator[str]:
    if [one.n for one in attempts] != list(range(1, row.attempt + 1)):
        yield f"job {row.id}: {row.attempt} attempts, booked {[one.n for one in attempts]}"
    if any(one.seconds < 0 or one.ended_at < one.started_at - 1 for one in attempts):
        yield f"job {row.id}: an attempt of negative length"
    fences = [one.fence for one in attempts]
    if sorted(set(fences)) != fences:
        yield f"job {row.id}: fences {fences} do not grow"
    started = sum(one.to_state == State.RUNNING for one in moves)
    if started != row.attempt:
        yield f"job {row.id}: {row.attempt} attempts, {started} claims in the audit"
    ends = [one.to_state for one in moves if one.from_state == State.RUNNING]
    if ends != [one.outcome for one in attempts]:
        yield f"job {row.id}: the audit ends attempts with {ends}"
    steps = [(one.from_state, one.to_state) for one in moves]
    if any(before[1] != after[0] for before, after in pairwise(steps)):
        yield f"job {row.id}: the audit has a gap: {steps}"


def _events(db: Database, row: Any) -> Iterator[str]:
    run = RunDir(db.settings.runs_dir / str(row.id))
    events = [event for event, _ in EventReader(run.events).read()]
    if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
        yield f"job {row.id}: events are missing or doubled"
    numbers = [event["attempt"] for event in events]
    if numbers != sorted(numbers):
        yield f"job {row.id}: an earlier attempt wrote after a later one"
    if events and row.ingested_seq != events[-1]["seq"]:
        yield f"job {row.id}: read up to event {row.ingested_seq} of {events[-1]['seq']}"


def file(db: Database) -> Iterator[str]:
    """The database itself is whole."""
    if db.dialect != "sqlite":
        return
    with db.read() as conn:
        for pragma in ("integrity_check", "foreign_key_check"):
            found = conn.exec_driver_sql(f"PRAGMA {pragma}").all()
            if found not in ([("ok",)], []):
                yield f"{pragma}: {found}"


def processes(root: Path) -> Iterator[str]:
    """Nothing that an engine started is left."""
    yield from (f"process {found.pid} is left" for found in leftovers(root))
