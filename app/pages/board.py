"""The board: what runs and is it healthy, what is next and why it waits, what came out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse

from app.charts.panels import HELDOUT
from app.charts.sparkline import sparkline
from app.text import wording
from app.text.benches import average_of
from app.text.headline import Headline, label
from app.web.dependencies import NO_NUL, DatabaseDep, DrainsDep, SettingsDep
from app.web.templating import environment, page
from engine.contract.registry import kinds
from worker.db.connection import Database
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submission import MAX_TAG
from worker.read import feed, jobs, series
from worker.read.benches import benches_of, parts
from worker.read.board import LOOKED_THROUGH, MAX_TEXT, BoardRow, Filter, board_page, gates_of
from worker.read.jobs import JobView
from worker.read.lane import lane_status
from worker.read.series import gaps_of

router = APIRouter(include_in_schema=False)

NEXT = 5
"""The queue has a page of its own."""

KEPT_ROWS = 1_000
"""Rows of the table that are kept as they were drawn, about 1.3 KB each."""

STATES = {"runs": tuple(state for state in State if state is not State.QUEUED), "all": tuple(State)}
"""Views beside the six states; `runs` is what the board shows first."""

StateName = Literal[
    "runs", "all", "queued", "running", "succeeded", "failed", "cancelled", "aborted"
]


@dataclass(frozen=True)
class Running:
    """One job that runs now."""

    job: JobView
    headline: Headline
    gates: list[tuple[int, float]]
    """(step, score) on the `select` rows; the newest is held against the first."""
    average_of: str | None
    """The sources that a held-out score is the mean of."""


@dataclass(frozen=True)
class Queued:
    """One queued job and the reason it does not run."""

    job: JobView
    word: Reason
    """For machines: LANE_BUSY, NOT_BEFORE, …"""
    detail: str
    until: float | None
    """When it may run, where that is known and its own."""


@dataclass(frozen=True)
class View:
    """What the address says: which rows are shown."""

    state: StateName = "runs"
    kind: str | None = None
    tag: str | None = None
    q: str | None = None
    before: int | None = None

    def address(self, **changed: object) -> str:
        """The address of this view with some of it changed; a page of rows begins anew."""
        known: dict[str, object] = {
            "state": None if self.state == "runs" else self.state,
            "kind": self.kind,
            "tag": self.tag,
            "q": self.q,
        }
        given = {name: value for name, value in {**known, **changed}.items() if value}
        return f"/?{urlencode(given)}" if given else "/"

    def filter(self) -> Filter:
        """The same for the database."""
        states = STATES.get(self.state) or (State(self.state),)
        return Filter(states, self.kind, self.tag, self.q, self.before)

    @property
    def narrowed(self) -> bool:
        """Whether it shows less than all runs."""
        return self != View(before=self.before)


@router.get("/")
def board(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    drains: DrainsDep,
    *,
    state: StateName = "runs",
    kind: Annotated[str, Query(max_length=60, pattern=NO_NUL)] = "",
    tag: Annotated[str, Query(max_length=MAX_TAG, pattern=NO_NUL)] = "",
    q: Annotated[str, Query(max_length=MAX_TEXT, pattern=NO_NUL)] = "",
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it."""
    view = View(state, kind or None, tag.strip() or None, q.strip() or None, before)
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    running = [_running(database, job) for job in jobs.running(database)]
    lane = lane_status(database, settings.lane)
    counts = jobs.counts(database)
    found = board_page(database, view.filter(), HELDOUT)
    context = {
        "position": position,
        "running": running,
        "waiting": _queued(jobs.next_jobs(database, limit=NEXT)),
        "waiting_more": max(0, counts[State.QUEUED] - NEXT),
        "view": view,
        "chips": _chips(view, counts),
        "kinds": sorted(kinds()),
        "lines": [_line(row, view, settings.lease_s) for row in found.rows],
        "older": view.address(before=found.older) if found.older else None,
        "looked_to": found.looked_to,
        "looked_through": LOOKED_THROUGH,
        "live": view.address(before=before, part="live"),
        "empty": not any(counts.values()),
        "title": _title(running, counts[State.QUEUED]),
        "lane": lane,
        "pause": jobs.paused(database),
        "lane_busy": lane.held and (lane.heartbeat_age_s or 0) <= settings.lease_s,
        "trouble": drains.trouble(),
        "lease_s": settings.lease_s,
    }
    return page(request, "board.html", context)


@router.post("/drains")
def run_now(drains: DrainsDep, back: Literal["/", "/queue"] = "/") -> RedirectResponse:
    """A person's order to run the queue: a drain in a session of its own, then the page again."""
    drains.run_now()
    return RedirectResponse(back, HTTPStatus.SEE_OTHER)


def _running(database: Database, job: JobView) -> Running:
    names = [f"heldout/{line.name}" for line in parts(benches_of({}, job.config))]
    known = series.summaries(database, job.id, names) if names else {}
    sources = average_of(benches_of({}, job.config, known)) if known else None
    return Running(job, Headline.of(job), gates_of(database, job.id, HELDOUT), sources)


def _queued(waiting: list[JobView]) -> list[Queued]:
    """The first says what the whole queue waits for, the others whom they stand behind.

    A deferred job stands behind nobody: it says what it waits for itself.
    """
    found: list[Queued] = []
    ahead: JobView | None = None
    for job in waiting:
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


def _line(row: BoardRow, view: View, lease_s: float) -> Markup:
    """One row of the table. Only a running job's changes by itself: its heartbeat gets older."""
    if row.state is State.RUNNING:
        return _drawn(row, view, lease_s)
    return _kept(row, view, lease_s, (wording.told_in(), wording.today()))


@lru_cache(maxsize=KEPT_ROWS)
def _kept(row: BoardRow, view: View, lease_s: float, _today: tuple[object, object]) -> Markup:
    """What it says hangs on its arguments alone.

    Moments of today are written without a date, and all of them in a zone: both are in the last.
    """
    return _drawn(row, view, lease_s)


def _drawn(row: BoardRow, view: View, lease_s: float) -> Markup:
    macros: Any = environment().get_template("board_row.html").module
    spark = sparkline(row.gates, gaps_of(row.result).get(HELDOUT, ()))
    drawn: Markup = macros.row(row, Headline.of(row), spark, view, lease_s, time.time())
    return drawn


def _chips(view: View, counts: Mapping[State, int]) -> list[tuple[str, str, int | None, bool]]:
    """(words, address, jobs, whether it is shown) of each view by state.

    The counters know all jobs: under a filter no number is said, instead of one of other jobs.
    """
    narrowed = any((view.kind, view.tag, view.q))
    sums = {name: sum(counts[state] for state in states) for name, states in STATES.items()}
    sums |= {state.value: counts[state] for state in State}
    return [
        (
            name,
            view.address(state=None if name == "runs" else name),
            None if narrowed else n,
            name == view.state,
        )
        for name, n in sums.items()
        if n or name in STATES or name == view.state
    ]


def _title(running: list[Running], queued: int) -> str:
    if running:
        head = running[0].headline
        progress = f"{head.progress} " if head.progress else ""
        return f"{progress}running · {queued} queued"
    return f"{queued} queued" if queued else "idle"
