"""The audit page: who moved a job or decided about the lane, when, why, and from which numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from app.web.dependencies import NO_NUL, DatabaseDep
from app.web.templating import page
from engine.contract.errors import ConfigError, ConfigProblem
from worker.queue.submission import LARGEST_ID
from worker.read import feed
from worker.read.audit import LOOKED_THROUGH, MOVES, AuditFilter, Place, audit_page, decisions_known

router = APIRouter(include_in_schema=False)

MAX_TEXT = 100
Words = Annotated[str, Query(max_length=MAX_TEXT, pattern=NO_NUL)]


@dataclass(frozen=True)
class View:
    """What the address says."""

    actor: str = ""
    job: int | None = None
    what: str = ""
    q: str = ""
    before: str = ""

    def address(self, **changed: object) -> str:
        """The address of this view with some of it changed; the list begins anew."""
        known = {"actor": self.actor, "job": self.job, "what": self.what, "q": self.q}
        given = {name: value for name, value in {**known, **changed}.items() if value}
        return f"/audit?{urlencode(given)}" if given else "/audit"

    def filter(self) -> AuditFilter:
        """The same for the database."""
        before = Place.parse(self.before) if self.before else None
        return AuditFilter(self.actor or None, self.job, self.what or None, self.q or None, before)

    @property
    def narrowed(self) -> bool:
        """Whether it shows less than everything."""
        return bool(self.actor or self.job or self.what or self.q)


@router.get("/audit")
def audit(
    request: Request,
    database: DatabaseDep,
    *,
    job: Annotated[str, Query(max_length=MAX_TEXT)] = "",
    actor: Words = "",
    what: Words = "",
    q: Words = "",
    before: Annotated[str, Query(pattern=r"^(\d{1,18}\.\d{1,18})?$")] = "",
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it. Raises ConfigError."""
    view = View(actor.strip(), _number(job.strip()), what.strip(), q.strip(), before)
    position = feed.last_change_id(database)
    context = {
        "title": "Audit",
        "position": position,
        "view": view,
        "found": audit_page(database, view.filter()),
        "moves": MOVES,
        "decisions": decisions_known(database),
        "looked_through": LOOKED_THROUGH,
        "live": view.address(before=before, part="live"),
    }
    return page(request, "audit.html", context)


def _number(typed: str) -> int | None:
    digits = typed.removeprefix("#")
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal() and int(digits) <= LARGEST_ID):
        remedy = "write its number, as 12 or #12, or leave the field empty"
        raise ConfigError([ConfigProblem("job", typed, "is not a job's number", remedy)])
    return int(digits) or None
