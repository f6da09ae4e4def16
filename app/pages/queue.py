"""Queue and autonomy: tonight on one axis, why what does not run waits, and who decided.

Shows what the worker's preview, policy and audit say. Its buttons are plain POST forms; each leads
back to a page, and what is refused comes as the error page that says why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse

from app.forms.requests import BROWSER, form_numbers
from app.text import wording
from app.text.autonomy_words import numbers_in_words
from app.web.arming import FIELDS, Card, asked_for
from app.web.arming import Form as Typed
from app.web.dependencies import SETTLED, DatabaseDep, DrainsDep, JobId, SettingsDep
from app.web.night_view import NightView, Told, night_view
from app.web.templating import page
from app.web.ticker import Drains
from app.web.tonight import tonight
from engine.contract.errors import ConfigError
from engine.contract.problems import text_problems
from worker.budget.price import take_price
from worker.clock.window import zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.db.decisions import DecisionView
from worker.queue import control, order, pausing
from worker.queue.lookup import JobNotFoundError
from worker.queue.pausing import Pause
from worker.queue.states import State
from worker.read import feed, jobs
from worker.read.jobs import JobView
from worker.read.lane import lane_status
from worker.schedule import autonomy
from worker.schedule.policy import Policy
from worker.settings import WorkerSettings

router = APIRouter(include_in_schema=False)

SHOWN = 50
"""Jobs of one page, each looked ahead at: 75 ms on two cores; `?show=` asks for more."""
MOST = 200
DECIDED = 15
Back = Annotated[Literal["/", "/queue"], Form()]
"""The page whose button was pressed."""
NOTHING = Typed({})


@dataclass(frozen=True)
class Toast:
    """What was just done, and the way back."""

    words: str
    undo: str | None
    jobs: Sequence[int]


@dataclass(frozen=True)
class Queue:
    """The queue's rows at one moment."""

    running: Sequence[JobView]
    turn: Sequence[JobView]
    """Those that only wait for their turn."""
    aside: Sequence[JobView]
    """Those with a reason of their own."""
    waiting: int
    pause: Pause | None

    @classmethod
    def read(cls, database: Database, show: int) -> Queue:
        """The first `show` of each."""
        running = jobs.running(database)
        waiting = jobs.counts(database)[State.QUEUED]
        aside = jobs.put_off(database, limit=show)
        asides = {job.id for job in aside}
        in_turn = jobs.in_turn(database, limit=show)
        # One without a reason was claimed while this page was read.
        turn = [job for job in in_turn if job.id not in asides and job.waits_for]
        return cls(running, turn, aside, waiting, jobs.paused(database))

    @property
    def shown(self) -> int:
        return len(self.turn) + len(self.aside)


@router.get("/queue")
def queue(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    drains: DrainsDep,
    show: Annotated[int, Query(ge=1, le=MOST)] = SHOWN,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it. `?opens=`, `?closes=`, `?cap_usd=` and
    `?max_failures=` show a night that is not armed under other terms.
    """
    asked = request.query_params
    typed = {name: asked[name][:40] for name in FIELDS if name in asked}
    toast = _toast(database, asked.getlist("cancelled"))
    context = {"toast": toast}
    return answer(
        request, database, settings, drains, show=show, one_night=Typed(typed), context=context
    )


def answer(
    request: Request,
    database: Database,
    settings: WorkerSettings,
    drains: Drains,
    *,
    show: int = SHOWN,
    one_night: Typed = NOTHING,
    every_night: Typed = NOTHING,
    context: Mapping[str, Any] | None = None,
) -> HTMLResponse:
    """The page, with what was typed into its two forms, and what is wrong with it."""
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    now = time.time()
    take_price(database)  # the command line may have set it
    found = Queue.read(database, show)
    card = _card(database, one_night, every_night, now)
    refused = bool(one_night.problems or every_night.problems)
    with wording.times_in(zone_named(card.drawn.zone)):
        known = {
            "position": position,
            "title": f"{found.waiting} queued · {'armed' if card.stand.armed else 'off'}",
            "queue": found,
            "card": card,
            "night": _night(database, found, card, show),
            "lane_busy": _is_busy(database, settings),
            "lease_s": settings.lease_s,
            "trouble": drains.trouble(),
            "show": show,
            "most": MOST,
            "default_show": SHOWN,
            "decided": [
                (entry, numbers_in_words(_worth_telling(entry)))
                for entry in decisions.newest(database, settings.lane, DECIDED)
            ],
            "toast": None,
            **(context or {}),
        }
        status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
        return page(request, "queue.html", known, status=status)


def _card(database: Database, typed: Typed, every: Typed, now: float) -> Card:
    stand = autonomy.status(database, now)
    asked, problems = asked_for(typed.typed, stand, now)
    if typed.typed and not typed.problems:
        typed = Typed(typed.typed, problems)
    terms = Policy.model_validate(stand.terms) if stand.terms else None
    return Card(stand, asked, terms, typed, every, now)


def _night(database: Database, found: Queue, card: Card, show: int) -> NightView:
    plan, by_hand = tonight(
        database,
        stand=card.stand,
        queue=[*found.turn, *found.aside],
        running=found.running,
        now=card.now,
        proposed=None if card.stand.armed else card.asked,
        resumed=True,
        limit=show,
    )
    told = Told(
        plan=plan,
        terms=None if by_hand else card.drawn,
        now=card.now,
        price_usd_h=card.stand.price_usd_h,
        armed=card.stand.armed,
        paused=found.pause is not None,
    )
    sweep = partial(jobs.get_sweep, database)
    return night_view(told, found.running, found.turn, found.aside, sweep)


def _is_busy(database: Database, settings: WorkerSettings) -> bool:
    lane = lane_status(database, settings.lane)
    return lane.held and (lane.heartbeat_age_s or 0) <= settings.lease_s


def _toast(database: Database, asked: Sequence[str]) -> Toast | None:
    """What was cancelled, as long as it still is."""
    numbers = [int(text) for text in asked[:MOST] if text.isdecimal() and len(text) < 16]
    gone = [number for number in numbers if _state(database, number) is State.CANCELLED]
    if not gone:
        return None
    named = f"job {gone[0]} was cancelled"
    if others := len(gone) - 1:
        behind = "the job" if others == 1 else f"{others} jobs"
        named = f"job {gone[0]} and {behind} behind it were cancelled"
    return Toast(wording.sentence(named), "/queue/restore", gone)


@router.post("/queue/jobs/{job_id}/move")
def reorder(
    job_id: JobId,
    database: DatabaseDep,
    before: Annotated[int | None, Form()] = None,
    after: Annotated[int | None, Form()] = None,
    to: Annotated[str | None, Form(max_length=10)] = None,
) -> RedirectResponse:
    """Move a queued job before or behind another one, or to an end; then its row of the queue."""
    given = {"before": before, "after": after, "to": to}
    wanted = {name: value for name, value in given.items() if value is not None}
    order.move(database, job_id, wanted, actor=BROWSER)
    return _to(f"/queue#q-{job_id}")


@router.post("/queue/jobs/{job_id}/cancel", dependencies=SETTLED)
def cancel(job_id: JobId, database: DatabaseDep) -> RedirectResponse:
    """Cancel a job, then the queue, which offers to take it back: with those behind it."""
    gone = [job_id]
    for number in gone:  # those behind them too, each behind what it waits for
        gone += [one for one in control.followers_of(database, number) if one not in gone]
    control.cancel(database, job_id, actor=BROWSER)
    numbers = "&".join(f"cancelled={number}" for number in gone[:MOST])
    return _to(f"/queue?{numbers}")


@router.post("/queue/restore", dependencies=SETTLED)
async def restore(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Take a cancel back: the jobs wait again, each in its place of before."""
    for number in await form_numbers(request, "job"):
        control.retry(database, number, actor=BROWSER)
    return _to("/queue")


@router.post("/queue/pause")
def pause(
    database: DatabaseDep, back: Back = "/", why: Annotated[str, Form(max_length=200)] = ""
) -> RedirectResponse:
    """Claim nothing more, then the page it was asked from."""
    if unwritable := text_problems({"why": why}):
        raise ConfigError(unwritable)
    pausing.pause(database, actor=BROWSER, why=why)
    return _to(back)


@router.post("/queue/resume")
def resume(database: DatabaseDep, back: Back = "/") -> RedirectResponse:
    """Go on claiming, then the page it was asked from."""
    pausing.resume(database, actor=BROWSER)
    return _to(back)


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)


def _state(database: Database, number: int) -> State | None:
    try:
        return jobs.get_job(database, number).state
    except JobNotFoundError:
        return None


def _worth_telling(entry: DecisionView) -> Mapping[str, Any]:
    """The numbers that its sentence does not say."""
    return {} if entry.what in {"armed", "disarmed"} else entry.numbers
