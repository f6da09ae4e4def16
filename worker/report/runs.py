"""What ran in a night, a line a job: verdict with interval and n, time, money, memory, failure.

A job stands here when one of its attempts ended in the night. What those took before the night is
told apart; its attempts of other nights are not counted. Knows no sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, RowMapping, case, func, select

from engine.contract.documents import opened
from engine.contract.embedded import is_demo
from engine.contract.known import pair, real, whole
from worker.budget.ledger import USED
from worker.clock.night import Night
from worker.db.connection import Database
from worker.db.tables import attempt, job, ledger, metric
from worker.queue.states import State
from worker.read.alerts import Alert, said_in
from worker.read.benches import BenchLine, benches_of
from worker.read.follow_ups import requant_of
from worker.read.series import evenly, gaps_of
from worker.screen import lines_on_screen

MEMORY, LOST, COLLAPSED = "MEMORY", "LOST", "COLLAPSED"
"""Causes of attempts: stopped for memory, left behind by a dead supervisor, given up by the
engine's collapse guard."""

GAIN, LOSS, UNPROVEN, POOL_ONLY, UNJUDGED = VERDICTS = (
    "gain",
    "loss",
    "no gain proven",
    "pool only",
    "no verdict",
)
"""The run's own words: a report says no more than its engine did."""

HELDOUT = "heldout/select"
GATES_KEPT = 40
"""Gates that a line keeps: enough to draw it small; the first and the last among them."""
_LOG_LINES = 5
_LOG_BYTES = 16 * 1024


class AttemptLine(BaseModel):
    """One attempt that ended in the night."""

    model_config = ConfigDict(frozen=True)

    n: int
    started_at: float
    ended_at: float
    seconds: float
    usd: float
    joules: float | None
    seconds_before: float = 0.0
    """Of its seconds, those before the night; its money and its energy likewise."""
    usd_before: float = 0.0
    joules_before: float = 0.0
    outcome: State
    cause: str | None


class RunLine(BaseModel):
    """One job that ran in the night."""

    model_config = ConfigDict(frozen=True)

    job_id: int
    name: str
    kind: str
    state: State
    """As it is when the report is made."""
    attempts: list[AttemptLine]
    seconds: float
    usd: float
    joules: float | None
    """Energy of those attempts; None where no counter could be read."""
    verdict: str | None
    """One of `VERDICTS`; None while it is not over, and where it ended without one. A run that
    collapsed may have one. Nights kept long ago have other words."""
    reason: str | None = None
    """What belongs behind the verdict: a loss on a bench, no transfer, why there is none."""
    requant: str | None = None
    """Where its config asks for one: the job that quantizes what it published, or why none does."""
    benches: list[BenchLine] = []
    """What it was judged on beside: a line for each source of its mixture and each bench."""
    lift: float | None
    """Held-out difference of the picked checkpoint to step 0, a share of one."""
    low: float | None
    high: float | None
    """Its 95 % interval."""
    n: int | None
    """Rows behind it."""
    different: int | None = None
    """Different questions among them; None where the engine did not say."""
    at_least: float | None = None
    """Of a gain: what is left of the lift on all held-out rows, the picking counted."""
    demo: bool = False
    """Its model or its data are embedded ones: it never leads."""
    p: float | None = None
    """Of the test for a gain; None where it is not known."""
    peak_gb: float | None
    """Of the whole machine, over all of the job's attempts."""
    mem_trace: dict[str, Any] | None
    """Peak, headroom and the most of each phase, as the supervisor measured them."""
    cause: str | None
    error: str | None
    remedy: str | None = None
    """What its engine's diagnosis says to do, where it collapsed."""
    last_lines: list[str]
    """Of the engine's log, when it failed."""
    heldout: list[tuple[int, float]] = []
    """(step, score on the `select` rows) of its gates, thinned to `GATES_KEPT`."""
    heldout_gaps: list[tuple[int, int]] = []
    """From which step to which a gate's score is no number."""
    alerts: list[Alert] = []
    """What it said while it went on; nights kept long ago have none."""

    @property
    def seconds_before(self) -> float:
        """Of its seconds, those before the night."""
        return sum(entry.seconds_before for entry in self.attempts)

    @property
    def usd_before(self) -> float:
        """What was charged before the night."""
        return sum(entry.usd_before for entry in self.attempts)

    @property
    def joules_before(self) -> float:
        """What was used before the night."""
        return sum(entry.joules_before for entry in self.attempts)

    @property
    def failed(self) -> bool:
        """Whether it ended without success, and not by a person's word."""
        return self.state in {State.FAILED, State.ABORTED}


def runs_of(db: Database, lane: str, night: Night) -> list[RunLine]:
    """In the order in which they first ended in the night."""
    with db.read() as conn:
        ended = (
            conn.execute(
                select(attempt)
                .where(
                    attempt.c.lane == lane,
                    attempt.c.ended_at >= night.begin,
                    attempt.c.ended_at < night.end,
                )
                .order_by(attempt.c.ended_at, attempt.c.job_id)
            )
            .mappings()
            .all()
        )
        numbers = list(dict.fromkeys(row["job_id"] for row in ended))
        jobs = {
            row["id"]: row
            for row in conn.execute(select(job).where(job.c.id.in_(numbers))).mappings()
        }
        quantized = {number: _requant(conn, row) for number, row in jobs.items()}
        charges = _charges(conn, numbers, night)
        gates = _gates(conn, numbers)
    lines = []
    for number in numbers:
        mine = [row for row in ended if row["job_id"] == number]
        attempts = [_attempt(row, night, charges.get((number, row["n"]))) for row in mine]
        line = _line(jobs[number], attempts, db.settings.runs_dir / str(number))
        more = {"heldout": gates.get(number, []), "requant": quantized[number]}
        lines.append(line.model_copy(update=more))
    return lines


def _requant(conn: Connection, row: RowMapping) -> str | None:
    found = requant_of(conn, row["id"], State(row["state"]), row["config"], row["result"])
    return None if found is None else found.words


def configs_of(db: Database, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The resolved configs of some jobs."""
    statement = select(job.c.id, job.c.config).where(job.c.id.in_(numbers))
    with db.read() as conn:
        return {row.id: row.config for row in conn.execute(statement)}


def _charges(
    conn: Connection, numbers: Sequence[int], night: Night
) -> Mapping[tuple[int, int], RowMapping]:
    """What each attempt of these jobs was charged, in all and before the night."""
    before = ledger.c.at < night.begin
    statement = (
        select(
            ledger.c.job_id,
            ledger.c.attempt,
            func.sum(ledger.c.usd).label("usd"),
            func.sum(ledger.c.joules).label("joules"),
            func.sum(case((before, ledger.c.usd), else_=0.0)).label("usd_before"),
            func.sum(case((before, ledger.c.joules), else_=0.0)).label("joules_before"),
        )
        .where(ledger.c.job_id.in_(numbers), ledger.c.entry.in_(USED))
        .group_by(ledger.c.job_id, ledger.c.attempt)
    )
    rows = conn.execute(statement).mappings()
    return {(row["job_id"], row["attempt"]): row for row in rows}


def _gates(conn: Connection, numbers: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
    """The held-out scores of each job, by step, thinned evenly."""
    statement = (
        select(metric.c.job_id, metric.c.step, metric.c.value)
        .where(metric.c.job_id.in_(numbers), metric.c.series == HELDOUT)
        .order_by(metric.c.job_id, metric.c.step)
    )
    found: dict[int, list[tuple[int, float]]] = {}
    for number, step, value in conn.execute(statement):
        found.setdefault(number, []).append((step, value))
    return {number: evenly(points, GATES_KEPT) for number, points in found.items()}


def _attempt(row: RowMapping, night: Night, charged: RowMapping | None) -> AttemptLine:
    names = ("n", "started_at", "ended_at", "seconds", "outcome", "cause")
    before = min(max(night.begin - row["started_at"], 0.0), row["seconds"])
    return AttemptLine(
        **{name: row[name] for name in names},
        usd=charged["usd"] if charged else 0.0,
        joules=charged["joules"] if charged else None,
        seconds_before=before,
        usd_before=charged["usd_before"] if charged else 0.0,
        joules_before=(charged["joules_before"] or 0.0) if charged else 0.0,
    )


def _line(row: RowMapping, attempts: Sequence[AttemptLine], run_dir: Path) -> RunLine:
    result: Mapping[str, Any] = row["result"]
    # A run that goes on is judged when it is over; one that collapsed was judged before it was.
    said: Mapping[str, Any] = result if State(row["state"]).final else {}
    low, high = pair(said.get("lift_ci95"))
    trace = result.get("mem_trace")
    failed = row["state"] in {State.FAILED, State.ABORTED}
    return RunLine(
        job_id=row["id"],
        name=row["name"],
        kind=row["kind"],
        state=row["state"],
        attempts=list(attempts),
        seconds=sum(entry.seconds for entry in attempts),
        usd=sum(entry.usd for entry in attempts),
        joules=_known_sum(entry.joules for entry in attempts),
        verdict=_verdict(said.get("verdict"), real(said.get("lift"))),
        reason=reason if isinstance(reason := said.get("verdict_reason"), str) else None,
        benches=benches_of(said, row["config"]) if said.get("benches") else [],
        lift=real(said.get("lift")),
        low=low,
        high=high,
        n=whole(said.get("report_n")),
        different=whole(said.get("report_different")),
        at_least=real(said.get("lift_at_least")),
        demo=is_demo(row["config"]),
        p=_p(said),
        peak_gb=real(trace.get("peak_used_gb")) if isinstance(trace, Mapping) else None,
        mem_trace=dict(trace) if isinstance(trace, Mapping) else None,
        heldout_gaps=list(gaps_of(result).get(HELDOUT, ())),
        cause=row["cause"],
        error=row["error"],
        remedy=_remedy(result.get("diagnosis")) if row["cause"] == COLLAPSED else None,
        last_lines=_tail(run_dir, attempts[-1].n, row["error"] or "") if failed else [],
        alerts=said_in(result),
    )


def _p(result: Mapping[str, Any]) -> float | None:
    """`p_better`; of kinds that know none, the exact test, which says as much of a loss."""
    better, exact = real(result.get("p_better")), real(result.get("p_value"))
    if better is not None or exact is None:
        return better
    return exact if (real(result.get("lift")) or 0.0) > 0 else 1.0


def _remedy(diagnosis: Any) -> str | None:
    """Of a diagnosis as the engine writes it; None where it has none."""
    remedy = diagnosis.get("remedy") if isinstance(diagnosis, Mapping) else None
    return remedy if isinstance(remedy, str) else None


def _verdict(word: Any, lift: float | None) -> str | None:
    """None for what no engine of ours says: another word, or a gain of unknown size."""
    known = isinstance(word, str) and word in VERDICTS
    return word if known and (word != GAIN or lift is not None) else None


def _known_sum(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _tail(run_dir: Path, number: int, error: str) -> list[str]:
    """What the failed attempt's engine said last, without what the job's error says already."""
    log = run_dir / "attempts" / f"{number:03d}" / "engine.log"
    try:
        with opened(log) as stream:
            stream.seek(max(0, log.stat().st_size - _LOG_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    shown = [line[:300] for line in lines_on_screen(text)]
    return [line for line in shown if line.strip() not in error][-_LOG_LINES:]
