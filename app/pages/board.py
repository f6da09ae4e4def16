"""The board: what runs and is it healthy, what is next and why it waits, what came out lately."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse

from app.charts import HELDOUT
from app.headline import Headline, label
from app.parts import DatabasePart, DrainsPart, SettingsPart
from app.templating import page
from worker.database import Database
from worker.jobs import views
from worker.jobs.deferral import Reason
from worker.jobs.states import State
from worker.jobs.views import JobView

router = APIRouter(include_in_schema=False)

RECENT = 20
NEXT = 20


@dataclass(frozen=True)
class Running:
    """One job that runs now."""

    job: JobView
    headline: Headline
    heldout_first: float | None
    """The step-0 policy on the `select` rows: what the newest gate is held against."""


@dataclass(frozen=True)
class Queued:
    """One queued job and the reason it does not run."""

    job: JobView
    word: Reason
    """For machines: LANE_BUSY, NOT_BEFORE, …"""
    detail: str
    until: float | None
    """When it may run, where that is known and its own."""


@router.get("/")
def board(
    request: Request, database: DatabasePart, settings: SettingsPart, drains: DrainsPart
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it."""
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = views.last_change_id(database)
    running = [_running(database, job) for job in views.running(database)]
    lane = views.lane_status(database, settings.lane)
    counts = views.counts(database)
    context = {
        "position": position,
        "running": running,
        "waiting": _queued(views.next_jobs(database, limit=NEXT)),
        "waiting_more": max(0, counts[State.QUEUED] - NEXT),
        "recent": [(job, Headline.of(job)) for job in _recent(database)],
        "empty": not any(counts.values()),
        "title": _title(running, counts[State.QUEUED]),
        "lane": lane,
        "pause": views.paused(database),
        "lane_busy": lane.held and (lane.heartbeat_age_s or 0) <= settings.lease_s,
        "trouble": drains.trouble(),
        "lease_s": settings.lease_s,
    }
    return page(request, "board.html", context)


@router.post("/drains")
def run_now(drains: DrainsPart) -> RedirectResponse:
    """A person's order to run the queue: a drain in a session of its own, then the board again."""
    drains.run_now()
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


def _running(database: Database, job: JobView) -> Running:
    gates = views.metrics(database, job.id, [HELDOUT]).get(HELDOUT, [])
    return Running(job, Headline.of(job), gates[0][1] if gates else None)


def _queued(jobs: list[JobView]) -> list[Queued]:
    """The first says what the whole queue waits for, the others whom they stand behind.

    A deferred job stands behind nobody: it says what it waits for itself.
    """
    found: list[Queued] = []
    ahead: JobView | None = None
    for job in jobs:
        if job.waits_for is None:  # it was claimed while this page was read
            continue
        word, detail, until = job.waits_for.reason, job.waits_for.detail, None
        if word.of_one_job:
            until = job.waits_for.next_eligible_at
        else:
            detail = f"behind {label(ahead)}" if ahead else detail
            ahead = job
        found.append(Queued(job, word, detail, until))
    return found


def _recent(database: Database) -> list[JobView]:
    """The last finished jobs of every outcome, newest end first."""
    found = [
        job
        for state in State
        if state.final
        for job in views.list_jobs(database, state=state, limit=RECENT)
    ]
    return sorted(found, key=lambda job: job.finished_at or time.time(), reverse=True)[:RECENT]


def _title(running: list[Running], queued: int) -> str:
    if running:
        head = running[0].headline
        progress = "" if head.step is None else f"{head.step}/{head.max_steps} "
        return f"{progress}running · {queued} queued"
    return f"{queued} queued" if queued else "idle"
