"""From events to what people see: a fold into the live result, metric rows and scores.

The supervisor is the only writer. Result, rows and how far the file was read change in one
fenced transaction, so a crash at any point neither loses nor doubles an event, and whoever goes
on from the job's row (a rescue, the next attempt) finishes the same fold.
Knows no process and no verdict.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from engine.contract.documents import opened
from engine.contract.errors import NightlaneError
from engine.contract.events import Event, EventReader, Progress, fault, usable
from engine.contract.known import LARGEST
from engine.contract.run_dir import RunDir
from worker.attempt.scores import drop_scores, read_score, write_scores
from worker.db.changes import announce
from worker.db.metrics import LONGEST_NAME, roll_up, take_back
from worker.db.tables import job, metric
from worker.lane.lease import BEAT_PATIENCE_S, Lease
from worker.memory.trace import mem_trace_of
from worker.queue.states import State

_LOG = logging.getLogger(__name__)

LIVE_FIELDS = frozenset(Progress.__annotations__) | {"status"}
"""What a running job shows; the rest comes with the end."""

MEM_TRACE = "mem_trace"

SILENT_SINCE = "silent_since"
"""In a running job's result: Unix seconds of its last event, while it is silent for too long."""

_BESIDE = frozenset({MEM_TRACE, SILENT_SINCE})
"""What the supervisor adds: no event says it."""

LEFT_OUT = "events_left_out"
"""In a result: how many events nobody could use, and what was wrong with the first of them."""

VALUES_LEFT_OUT = "values_left_out"
"""In a result: how many values were measured that are in no chart, and the first of them."""

NO_NUMBERS = "no_numbers"
"""In a result: by series, from which step to which what was measured was no number. Its chart has a
gap there, where a step that nobody measured has none."""
_MOST_GAPS = 100
"""Of a series; later ones are counted with `VALUES_LEFT_OUT` alone."""
_MOST_BROKEN = 50
"""Series with gaps."""

_MAX_STEP = 2**31 - 1
"""The largest number of a column on every database."""

_URGENT = frozenset({"started", "gate", "score", "finished"})


class UnreadableEventsError(NightlaneError):
    """The events of a run cannot be taken over, whatever the reason; the run is to blame."""

    def __init__(self, events: Path, cause: Exception) -> None:
        self.events = events
        reason = str(cause).splitlines()[0] if str(cause) else ""
        super().__init__(
            f"{events} cannot be read to its end ({type(cause).__name__}: {reason[:200]}); "
            "look at it, and at the engine.log beside it"
        )


class MetricRow(NamedTuple):
    """One measured value."""

    series: str
    step: int
    value: float


def fold(result: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """The live result after one more event. Pure: the same events give the same result.

    An event that cannot be used changes nothing but the count of those.
    """
    wrong = fault(event)
    if wrong is not None:
        before = result.get(LEFT_OUT) or {"n": 0, "first": wrong}
        return {**result, LEFT_OUT: {**before, "n": before["n"] + 1}}
    match event["type"]:
        case "started":
            return _restarted(result, event.get("resumed_from"))
        case "progress":
            fields = {key: value for key, value in event.items() if key in Progress.__annotations__}
            said = {"eta_at": event.get("t")} if "eta_s" in fields else {}
            return {**result, **fields, **said}
        case "gate" | "metric" | "score":
            return _counted(_gated(result, event), event)
        case "finished":
            return {**result, **(event.get("result") or {}), "status": event.get("status")}
        case _:
            return dict(result)


def _restarted(result: Mapping[str, Any], resumed_from: int | None) -> dict[str, Any]:
    """A new attempt: from the beginning nothing counts, else only what is behind its step.

    How long the attempt before it expected to need is no word of this one.
    """
    if resumed_from is None:
        return {"status": "running"}
    live = LIVE_FIELDS - {"eta_s"} | {LEFT_OUT, VALUES_LEFT_OUT}
    kept = {key: value for key, value in result.items() if key in live}
    if NO_NUMBERS in result:
        kept[NO_NUMBERS] = _gaps_up_to(result[NO_NUMBERS], resumed_from)
    gate = kept.get("gate")
    step = gate.get("step") if isinstance(gate, Mapping) else None
    if isinstance(step, int) and step > resumed_from:
        kept |= {"gate": None, "last_heldout": None}
    return {**kept, "status": "running", "step": resumed_from}


def _gated(result: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """Only the split that selects is shown while the run goes on."""
    if event["type"] != "gate" or event.get("split") != "select":
        return dict(result)
    gate = {key: event.get(key) for key in ("step", "score", "n", "ci95", "selected")}
    return {**result, "gate": gate, "last_heldout": event.get("score")}


def with_mem_trace(result: Mapping[str, Any], run: RunDir) -> dict[str, Any]:
    """The result to show: the fold, and what the supervisor measured beside the engine."""
    trace = mem_trace_of(run)
    return dict(result) if trace is None else {**result, MEM_TRACE: trace}


def last_finished(run: RunDir, attempt: int) -> Event | None:
    """The `finished` event of one attempt; None when its engine did not get that far."""
    found = None
    for event in usable(run.events):
        if (event["type"], event["attempt"]) == ("finished", attempt):
            found = event
    return found


def _counted(result: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """The result, with what the event measured and no chart or table can show."""
    step, values = _measured(event)
    wrong = [
        f"{series[:100].replace(chr(0), '␀')} at step {step} {why}"
        for series, value in values.items()
        if (why := _unfit(series, step, value)) is not None
    ]
    if event["type"] == "score" and read_score(event) is None:
        wrong.append(f"a score at step {event.get('step')} is none")
    if not wrong:
        return dict(result)
    before = result.get(VALUES_LEFT_OUT) or {"n": 0, "first": wrong[0]}
    told = {**result, VALUES_LEFT_OUT: {**before, "n": before["n"] + len(wrong)}}
    broken = [
        series for series, value in values.items() if _unfit(series, step, value) == _NO_NUMBER
    ]
    return told if not broken else {**told, NO_NUMBERS: _with_gaps(result, step, broken)}


Gaps = dict[str, list[list[int]]]


def _with_gaps(result: Mapping[str, Any], step: int, broken: Sequence[str]) -> Gaps:
    """A step more; neighbours are one gap."""
    found: Gaps = {**(result.get(NO_NUMBERS) or {})}
    for series in broken:
        gaps = found.get(series, [])
        if gaps and gaps[-1][1] in {step - 1, step}:
            found[series] = [*gaps[:-1], [gaps[-1][0], step]]
        elif len(gaps) < _MOST_GAPS and (gaps or len(found) < _MOST_BROKEN):
            found[series] = [*gaps, [step, step]]
    return found


def _gaps_up_to(found: Gaps, last: int) -> Gaps:
    """What a resumed run measures anew is not broken any more."""
    kept = {name: [[a, min(b, last)] for a, b in gaps if a <= last] for name, gaps in found.items()}
    return {name: gaps for name, gaps in kept.items() if gaps}


def metric_rows(event: Event) -> Iterator[MetricRow]:
    """The values that one event measured; what no database could hold is left out."""
    step, values = _measured(event)
    for series, value in values.items():
        if _unfit(series, step, value) is None:
            yield MetricRow(series, step, float(value))


def _measured(event: Event) -> tuple[int, Mapping[str, Any]]:
    """The step and the values by series of an event, those that nobody can use too."""
    match event:
        case {"type": "metric", "step": int(step), "values": dict(values)}:
            return step, values
        case {"type": "gate", "step": int(step), "split": str(split)}:
            name = f"heldout/{split}"
            ends = dict(zip((f"{name}/low", f"{name}/high"), event.get("ci95") or (), strict=False))
            more = {f"{name}/{key}": value for key, value in (event.get("values") or {}).items()}
            return step, {name: event.get("score")} | ends | more
        case _:
            return 0, {}


_NO_NUMBER = "is no number (NaN, infinite or of another type)"


def _unfit(series: str, step: int, value: Any) -> str | None:
    """Why a value is in no chart, in words."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NO_NUMBER
    if not abs(value) <= LARGEST:
        return f"is beyond {LARGEST:g}"
    if len(series) > LONGEST_NAME:
        return f"has a name of more than {LONGEST_NAME} characters"
    if not 0 <= step <= _MAX_STEP:
        return f"is not at a step from 0 to {_MAX_STEP}"
    return "has a name that no table can hold" if "\0" in series else None


class Ingest:
    """Follows one job's events and keeps its row and metrics up to date."""

    def __init__(
        self,
        lease: Lease,
        job_id: int,
        run: RunDir,
        listen: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """`listen`: called with every event that is read."""
        self._lease = lease
        self._listen = listen
        self._db = lease.db
        self._job_id = job_id
        self._throttle_s = lease.db.settings.throttle_s
        self._written_at = -math.inf
        self._pending: list[Event] = []
        self._urgent = False
        self._from_scratch = False
        self.finished: Event | None = None
        """The newest `finished` event that this object read."""
        self.silent_since: float | None = None
        """Shown beside the result; the next `pull` or `flush` writes it."""
        self._shown_silent: float | None = None
        self._resume(run)

    def _resume(self, run: RunDir) -> None:
        with self._db.read() as conn:
            row = conn.execute(select(job).where(job.c.id == self._job_id)).one()
        self._run = run
        self._reader = EventReader(run.events, row.ingested_offset)
        self._seq: int = row.ingested_seq
        self.result: dict[str, Any] = {k: v for k, v in row.result.items() if k not in _BESIDE}
        if not _continues(run, row):
            self._start_over()

    def _start_over(self) -> None:
        """A power cut took the file's end, or somebody changed it: what it says now counts."""
        self._reader.offset = self._seq = 0
        self.result = {}
        self._from_scratch = True

    def pull(self) -> None:
        """Read what is new; write it when it is urgent or the throttle allows.

        Raises LeaseLostError, DatabaseError or UnreadableEventsError.
        """
        with self._legible():
            self._read()
        due = self._urgent or time.monotonic() - self._written_at >= self._throttle_s
        news = self._pending or self.silent_since != self._shown_silent
        if news and due and self._lease.outage.worth_trying():
            with self._lease.outage.borne():
                self._flush(BEAT_PATIENCE_S)

    def flush(self) -> None:
        """Write everything read so far, and the newest memory trace.

        Raises LeaseLostError, DatabaseError or UnreadableEventsError, and then nothing was
        written.
        """
        self._flush(None)

    def _read(self) -> None:
        for event, _ in self._reader.read():
            self._listen(event)
            before = self.result.get("phase")
            self.result = fold(self.result, event)
            self._seq = int(event["seq"])
            self._pending.append(event)
            if fault(event) is not None:
                continue
            if event["type"] == "finished":
                self.finished = event
            self._urgent |= event["type"] in _URGENT or self.result.get("phase") != before

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Whatever a run's file holds must not keep the queue from going on behind it."""
        try:
            yield
        except NightlaneError:
            raise
        except Exception as error:
            _LOG.exception("%s", self._run.events)
            raise UnreadableEventsError(self._run.events, error) from error

    def _flush(self, patience_s: float | None) -> None:
        with self._legible(), self._db.write_tx(patience_s=patience_s) as conn:
            self._write(conn)
        self._pending.clear()
        self._urgent = self._from_scratch = False
        self._shown_silent = self.silent_since
        self._written_at = time.monotonic()

    def _write(self, conn: Connection) -> None:
        mine = update(job).where(
            job.c.id == self._job_id, job.c.state == State.RUNNING, job.c.fence == self._lease.fence
        )
        silent = {} if self.silent_since is None else {SILENT_SINCE: self.silent_since}
        written = conn.execute(
            mine.values(
                result=with_mem_trace(self.result, self._run) | silent,
                ingested_seq=self._seq,
                ingested_offset=self._reader.offset,
            )
        ).rowcount
        if written != 1:
            raise self._lease.lost()
        if self._from_scratch:
            drop_metrics(conn, self._job_id)
            drop_scores(conn, self._job_id)
        write_metrics(conn, self._job_id, self._pending)
        write_scores(conn, self._job_id, self._pending)
        announce(conn, "job", self._job_id)


def _continues(run: RunDir, row: Row[Any]) -> bool:
    """Whether the file still holds, up to the offset, what was read from it."""
    if row.ingested_offset == 0:
        return True
    try:
        with opened(run.events) as stream:
            stream.seek(row.ingested_offset - 1)
            return stream.read(1) == b"\n"
    except OSError:
        return False


def write_metrics(conn: Connection, job_id: int, events: list[Event]) -> None:
    """Store what the events measured, in their order, and bring the rollups up to date.

    A later value of a step replaces it; `started` takes back what later steps of earlier
    attempts had measured.
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for event in events:
        if fault(event) is not None:
            continue
        if event["type"] == "started":
            _insert(conn, job_id, rows)
            rows = {}
            _supersede(conn, job_id, event.get("resumed_from"))
        for series, step, value in metric_rows(event):
            rows[series, step] = {
                "job_id": job_id,
                "series": series,
                "step": step,
                "attempt": event["attempt"],
                "value": value,
                "at": event.get("t"),
            }
    _insert(conn, job_id, rows)


def drop_metrics(conn: Connection, job_id: int) -> None:
    """Forget everything that a job measured."""
    conn.execute(delete(metric).where(metric.c.job_id == job_id))
    take_back(conn, job_id, None)


def _supersede(conn: Connection, job_id: int, resumed_from: int | None) -> None:
    if resumed_from is None:
        drop_metrics(conn, job_id)
        return
    statement = delete(metric).where(metric.c.job_id == job_id)
    later = statement.where(metric.c.step > resumed_from, metric.c.series.not_like("warmup/%"))
    conn.execute(later)
    take_back(conn, job_id, resumed_from)


def _insert(conn: Connection, job_id: int, rows: Mapping[tuple[str, int], dict[str, Any]]) -> None:
    if not rows:
        return
    dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(metric)
    statement = statement.on_conflict_do_update(
        index_elements=["job_id", "series", "step"],
        set_={name: statement.excluded[name] for name in ("attempt", "value", "at")},
    )
    conn.execute(statement, list(rows.values()))
    roll_up(conn, job_id, _reach(rows))


def _reach(rows: Collection[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """The lowest and highest step of each series."""
    found: dict[str, tuple[int, int]] = {}
    for series, step in rows:
        low, high = found.get(series, (step, step))
        found[series] = (min(low, step), max(high, step))
    return found
