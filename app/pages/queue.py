"""Queue and autonomy: what runs tonight, in which order, why the rest waits, and who decided.

Shows what the worker's preview, policy and audit say. Its buttons are plain POST forms; each leads
back to a page, and what is refused comes as the error page that says why.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse

from app.forms.requests import BROWSER
from app.forms.schema import Setting, flattened, schema_of
from app.text.autonomy_words import hours_in_words, now_in_words, numbers_in_words
from app.text.headline import Headline, label
from app.web.dependencies import DatabaseDep, DrainsDep, JobId, SettingsDep
from app.web.templating import page
from app.web.ticker import Drains
from app.web.tonight import FORESEEN, tonight
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.amounts import exact
from worker.clock.window import zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.db.decisions import DecisionView
from worker.queue import order, pausing
from worker.queue.states import State
from worker.read import feed, jobs
from worker.read.jobs import JobView, SweepView
from worker.read.lane import lane_status
from worker.read.tonight import Step
from worker.schedule import autonomy
from worker.schedule.policy import Policy
from worker.settings import WorkerSettings

router = APIRouter(include_in_schema=False)

SHOWN = 50
"""Jobs of one page; `?show=` asks for more."""
MOST = 200
DECIDED = 15
LONGEST = "+7d"
"""How long the form arms the lane for, unless it is told another time."""
Back = Annotated[Literal["/", "/queue"], Form()]
"""The page whose button was pressed."""


@dataclass(frozen=True)
class Place:
    """One queued job in its place, with what tonight holds for it."""

    job: JobView
    number: int
    why: str
    word: str
    until: float | None
    step: Step | None
    above: int | None
    """The job before it in turn: what `Up` moves it before."""
    below: int | None


@dataclass(frozen=True)
class Batch:
    """Neighbours in the queue: one job, or several of the same sweep."""

    sweep: SweepView | None
    places: Sequence[Place]

    @property
    def ends_at(self) -> float | None:
        """When the last of them is expected to be done."""
        ends = [place.step.finishes_at for place in self.places if place.step]
        return None if None in ends else max((end for end in ends if end), default=None)

    @property
    def cost_usd(self) -> float:
        return sum(place.step.cost_usd for place in self.places if place.step)


@dataclass(frozen=True)
class Field:
    """One answer of the arming form."""

    setting: Setting
    typed: str
    problems: Sequence[ConfigProblem]


@router.get("/queue")
def queue(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    drains: DrainsDep,
    show: Annotated[int, Query(ge=1, le=MOST)] = SHOWN,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it."""
    return answer(request, database, settings, drains, show=show)


def answer(
    request: Request,
    database: Database,
    settings: WorkerSettings,
    drains: Drains,
    *,
    show: int = SHOWN,
    typed: Mapping[str, str] | None = None,
    problems: Sequence[ConfigProblem] = (),
) -> HTMLResponse:
    """The page; `typed` and `problems` are of an arming form that was refused."""
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    now = time.time()
    stand = autonomy.status(database, now)
    running = jobs.running(database)
    waiting = jobs.counts(database)[State.QUEUED]
    aside = jobs.put_off(database, limit=show)
    asides = {job.id for job in aside}
    turn = [job for job in jobs.in_turn(database, limit=show) if job.id not in asides]
    plan, by_hand = tonight(
        database,
        stand=stand,
        queue=[*turn, *aside],
        running=running,
        now=now,
        limit=FORESEEN if show == SHOWN else show,
    )
    steps = {step.job_id: step for step in plan.steps}
    lane = lane_status(database, settings.lane)
    terms = Policy.model_validate(stand.terms) if stand.terms else None
    context = {
        "position": position,
        "title": f"{waiting} queued · {'armed' if stand.armed else 'off'}",
        "stand": stand,
        "terms": terms,
        "hours": hours_in_words(terms) if terms else None,
        "hours_now": now_in_words(terms, now) if terms and stand.armed else None,
        "until": terms.changes_at(now) if terms and stand.armed else None,
        "plan": plan,
        "by_hand": by_hand,
        "running": [(job, Headline.of(job)) for job in running],
        "lane": lane,
        "lane_busy": lane.held and (lane.heartbeat_age_s or 0) <= settings.lease_s,
        "lease_s": settings.lease_s,
        "pause": jobs.paused(database),
        "trouble": drains.trouble(),
        "batches": _batches(database, _turn(turn, steps)),
        "aside": [_place(job, number, steps) for number, job in enumerate(aside, 1)],
        "in_turn": len(turn),
        "looked_ahead": len(plan.steps),
        "waiting": waiting,
        "show": show,
        "most": MOST,
        "default_show": SHOWN,
        "decided": [
            (entry, numbers_in_words(_worth_telling(entry)))
            for entry in decisions.newest(database, settings.lane, DECIDED)
        ],
        "fields": _fields(stand, typed, problems),
        "machine_zone": zone_named(None).key,
        "typed": typed or {},
        "problems": problems,
        "by_field": _by_field(problems),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if problems else HTTPStatus.OK
    return page(request, "queue.html", context, status=status)


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


def _turn(waiting: Sequence[JobView], steps: Mapping[int, Step]) -> list[Place]:
    """Jobs that only wait for their turn: the first says for what, the others behind whom."""
    found = []
    for index, job in enumerate(waiting):
        if job.waits_for is None:  # it was claimed while this page was read
            continue
        above = waiting[index - 1] if index else None
        below = waiting[index + 1] if index + 1 < len(waiting) else None
        why = job.waits_for.detail if above is None else f"behind {label(above)}"
        found.append(
            Place(
                job=job,
                number=index + 1,
                why=why,
                word=job.waits_for.reason,
                until=None,
                step=steps.get(job.id),
                above=above.id if above else None,
                below=below.id if below else None,
            )
        )
    return found


def _place(job: JobView, number: int, steps: Mapping[int, Step]) -> Place:
    """A job that waits for something of its own."""
    waits = job.waits_for
    return Place(
        job=job,
        number=number,
        why=waits.detail if waits else "",
        word=waits.reason if waits else "",
        until=waits.next_eligible_at if waits else None,
        step=steps.get(job.id),
        above=None,
        below=None,
    )


def _batches(database: Database, places: Sequence[Place]) -> list[Batch]:
    """Neighbours of one sweep stand together; what stands alone is a batch of its own."""
    found: list[list[Place]] = []
    for place in places:
        same = found and place.job.sweep_id is not None
        if same and found[-1][-1].job.sweep_id == place.job.sweep_id:
            found[-1].append(place)
        else:
            found.append([place])
    return [
        Batch(
            jobs.get_sweep(database, group[0].job.sweep_id)
            if len(group) > 1 and group[0].job.sweep_id is not None
            else None,
            group,
        )
        for group in found
    ]


def _worth_telling(entry: DecisionView) -> Mapping[str, Any]:
    """The numbers that its sentence does not say."""
    return {} if entry.what in {"armed", "disarmed"} else entry.numbers


def _fields(
    stand: autonomy.Status, typed: Mapping[str, str] | None, problems: Sequence[ConfigProblem]
) -> list[Field]:
    """The form: what was typed, else the terms as they were set last."""
    by_field = _by_field(problems)
    found = []
    for setting in flattened(schema_of(Policy)):
        if setting.name == "expires_at":
            continue
        known = (stand.terms or {}).get(setting.name, setting.default)
        text = "" if known is None else exact(known) if isinstance(known, float) else str(known)
        found.append(
            Field(
                setting,
                text if typed is None else typed.get(setting.name, ""),
                by_field.get(setting.name, ()),
            )
        )
    return found


def _by_field(problems: Sequence[ConfigProblem]) -> dict[str, list[ConfigProblem]]:
    found: dict[str, list[ConfigProblem]] = {}
    for problem in problems:
        found.setdefault(problem.field, []).append(problem)
    return found
