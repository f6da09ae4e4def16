"""The budget page: what was spent against the caps, on what, and what tonight will cost."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.forms.requests import BROWSER, form_fields, with_numbers
from app.web.dependencies import DatabaseDep, SettingsDep
from app.web.templating import page
from app.web.tonight import FORESEEN, tonight
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.budget import ledger
from worker.budget.ledger import Entry
from worker.budget.price import set_price, take_price
from worker.db.connection import Database
from worker.queue.states import State
from worker.queue.submission import LARGEST_ID
from worker.read import feed, jobs
from worker.read.spending import DaySpent, entries, spending
from worker.schedule import autonomy
from worker.settings import WorkerSettings

router = APIRouter(prefix="/budget", include_in_schema=False)

ROWS = 50
_BAR = 160
"""Width of the longest bar."""


@dataclass(frozen=True)
class Bar:
    """A day's money as a bar, in units of the drawing."""

    day: DaySpent
    width: float
    cap_at: float | None

    @property
    def over(self) -> bool:
        return self.day.cap_usd is not None and self.day.usd > self.day.cap_usd


@router.get("")
def budget(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    *,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    day: datetime.date | None = None,
    entry: Entry | None = None,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it.

    `before`, `day` and `entry` choose among the ledger's rows.
    """
    chosen = {"before": before, "day": day, "entry": entry}
    return _page(request, database, settings, chosen)


@router.post("/external")
async def add_spend(request: Request, database: DatabaseDep, settings: SettingsDep) -> Response:
    """Count money that was spent elsewhere; or the page again, each problem at its field."""
    typed = await form_fields(request)

    def answered() -> Response:
        if unwritable := text_problems(dict(typed)):
            return _page(request, database, settings, {}, problems=unwritable)
        try:
            given = with_numbers(typed, {"usd"})
            done = ledger.spend_elsewhere(database, given, actor=BROWSER, now=time.time())
        except ConfigError as error:
            return _page(request, database, settings, {}, typed=typed, problems=error.problems)
        return RedirectResponse(f"/budget?day={done.day}#rows-h", HTTPStatus.SEE_OTHER)

    return await anyio.to_thread.run_sync(answered)


@router.post("/price")
async def price(request: Request, database: DatabaseDep, settings: SettingsDep) -> Response:
    """Set what an hour of the lane costs; or the page again, with what is wrong with it."""
    typed = await form_fields(request)

    def answered() -> Response:
        given = with_numbers(typed, {"usd_h"})
        try:
            set_price(database, given, actor=BROWSER, now=time.time())
        except ConfigError as error:
            return _page(request, database, settings, {}, typed=typed, problems=error.problems)
        return RedirectResponse("/budget#price", HTTPStatus.SEE_OTHER)

    return await anyio.to_thread.run_sync(answered)


def _page(
    request: Request,
    database: Database,
    settings: WorkerSettings,
    chosen: Mapping[str, Any],
    *,
    typed: Mapping[str, str] | None = None,
    problems: Sequence[ConfigProblem] = (),
) -> HTMLResponse:
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    now = time.time()
    take_price(database)  # the command line may have set it
    stand = autonomy.status(database, now)
    found = spending(database, now)
    running = jobs.running(database)
    plan, by_hand = tonight(
        database,
        stand=stand,
        queue=jobs.next_jobs(database, limit=FORESEEN),
        running=running,
        now=now,
    )
    rows = entries(
        database,
        before=chosen.get("before"),
        day=chosen.get("day"),
        entry=chosen.get("entry"),
        limit=ROWS + 1,
    )
    context = {
        "position": position,
        "title": f"${stand.spent_usd:.2f} spent today",
        "stand": stand,
        "today": found.days[0],
        "held": found.held,
        "bars": _bars(found.days),
        "sentence": _sentence(found.days),
        "jobs": found.jobs,
        "more_jobs": found.more_jobs,
        "plan": plan,
        "by_hand": by_hand,
        "waiting": jobs.counts(database)[State.QUEUED],
        "foreseen": len(plan.steps),
        "rows": rows[:ROWS],
        "next_before": rows[ROWS - 1].id if len(rows) > ROWS else None,
        "chosen": {name: value for name, value in chosen.items() if value is not None},
        "kinds_of_entry": list(Entry),
        "empty": not rows and not any(chosen.values()),
        "lane": settings.lane,
        "typed": typed or {},
        "problems": problems,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if problems else HTTPStatus.OK
    return page(request, "budget.html", context, status=status)


def _bars(days: Sequence[DaySpent]) -> list[Bar]:
    """Newest first; all on one scale, with room for the cap."""
    most = max((max(day.usd, day.cap_usd or 0.0) for day in days), default=0.0) or 1.0
    return [
        Bar(
            day,
            round(day.usd / most * _BAR, 1),
            None if day.cap_usd is None else round(day.cap_usd / most * _BAR, 1),
        )
        for day in days
    ]


def _sentence(days: Sequence[DaySpent]) -> str:
    """The table in a sentence."""
    total = sum(day.usd for day in days)
    hours = sum(day.hours for day in days)
    over = sum(day.cap_usd is not None and day.usd > day.cap_usd for day in days)
    capped = (
        f"{over} {'day' if over == 1 else 'days'} went over the cap"
        if over
        else "no day went over its cap"
    )
    return f"${total:.2f} and {hours:.2f} lane hours in the last {len(days)} days; {capped}."
