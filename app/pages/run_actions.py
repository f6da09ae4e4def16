"""What one does to chosen runs: tag, rename, note, archive, delete; and views saved under a name.

Plain forms: without a script every one works. Each leads back to the table, which says what was
done and, where it can be taken back, offers that. What is refused comes as the error page.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse

from app.forms.requests import BROWSER, form_fields, form_numbers
from app.web.dependencies import SETTLED, DatabaseDep
from app.web.templating import page
from engine.contract.errors import ConfigError, ConfigProblem
from worker.db.connection import Database
from worker.queue import control, deletion, run_views
from worker.read import jobs

router = APIRouter(include_in_schema=False)

MOST_CHOSEN = 200
What = Literal["tag", "note", "name"]
Chosen = Annotated[list[int], Query(alias="job", max_length=MOST_CHOSEN)]
ASKED = {
    "tag": ("Tag runs", "tags, with commas; -word takes one away"),
    "note": ("Write a note", "what to remember; empty takes the note away"),
    "name": ("Rename", "what to call it"),
}


@router.get("/runs/edit")
def ask(request: Request, database: DatabaseDep, what: What, chosen: Chosen = []) -> HTMLResponse:  # noqa: B006
    """The one field that is asked for, with what stands there now where one run is chosen."""
    found = [jobs.get_job(database, number) for number in _some(chosen)]
    one = found[0] if len(found) == 1 else None
    now = {"tag": one.tags, "note": one.note, "name": one.name} if one else {}
    value = now.get(what) or ""
    title, label = ASKED[what]
    context = {
        "title": title,
        "label": label,
        "what": what,
        "value": ", ".join(value) if isinstance(value, list) else value,
        "jobs": found,
        "back": _back(request),
    }
    return page(request, "run_edit.html", context)


@router.post("/runs/edit")
async def edit(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Tag, note or name of every chosen run."""
    fields, chosen = await form_fields(request), _some(await form_numbers(request, "job"))
    what, value = fields.get("what", ""), fields.get("value", "").strip()
    for number in chosen:
        control.edit(database, number, _changed(database, number, what, value), actor=BROWSER)
    return _led_back(fields.get("back", ""), what, chosen)


@router.post("/runs/archive", dependencies=SETTLED)
async def archive(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Put the chosen runs away."""
    return await _put(request, database, archived=True)


@router.post("/runs/restore", dependencies=SETTLED)
async def restore(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Take them out again."""
    return await _put(request, database, archived=False)


@router.get("/runs/delete")
def ask_delete(request: Request, database: DatabaseDep, chosen: Chosen = []) -> HTMLResponse:  # noqa: B006
    """What a deletion would free, who misses it, and the button that does it."""
    found = [deletion.foreseen(database, number) for number in _some(chosen)]
    context = {
        "title": "Delete runs",
        "going": [one for one in found if one.refused is None],
        "refused": [one for one in found if one.refused is not None],
        "bytes": sum(one.bytes for one in found if one.refused is None),
        "back": _back(request),
    }
    return page(request, "run_delete.html", context)


@router.post("/runs/delete", dependencies=SETTLED)
async def delete(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Delete the chosen runs for good. Raises WrongStateError at the first that must not be."""
    fields, chosen = await form_fields(request), _some(await form_numbers(request, "job"))
    too = fields.get("descendants") == "yes"
    for number in chosen:
        deletion.delete_run(database, number, actor=BROWSER, descendants_too=too)
    return _led_back(fields.get("back", ""), "delete", chosen)


@router.post("/runs/views")
async def save_view(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Keep the shown view under a name, then show it."""
    fields = await form_fields(request)
    wanted = {name: fields.get(name, "") for name in ("name", "query")}
    view = run_views.save_view(database, wanted, actor=BROWSER)
    return _led_back(f"/runs?{view.query}", "save", [])


@router.post("/runs/views/drop")
async def drop_view(request: Request, database: DatabaseDep) -> RedirectResponse:
    """Forget a view."""
    run_views.drop_view(database, (await form_fields(request)).get("name", ""))
    return _led_back(_back(request), "forget", [])


async def _put(request: Request, database: Database, *, archived: bool) -> RedirectResponse:
    fields, chosen = await form_fields(request), _some(await form_numbers(request, "job"))
    for number in chosen:
        control.edit(database, number, {"archived": archived}, actor=BROWSER)
    back = fields.get("back") or _back(request)
    return _led_back(back, "archive" if archived else "restore", chosen)


def _changed(database: Database, number: int, what: str, value: str) -> dict[str, Any]:
    if what != "tag":
        return {what: value or None}
    words = [word for part in value.split(",") if (word := part.strip())]
    gone = {word[1:].strip() for word in words if word.startswith("-")}
    kept = [*jobs.get_job(database, number).tags, *(w for w in words if not w.startswith("-"))]
    return {"tags": [tag for tag in dict.fromkeys(kept) if tag not in gone]}


def _some(chosen: list[int]) -> list[int]:
    """Raises ConfigError where none is chosen."""
    if not chosen:
        problem = ConfigProblem("job", None, "no run is chosen", "tick some runs first")
        raise ConfigError([problem])
    return list(dict.fromkeys(chosen))[:MOST_CHOSEN]


def _back(request: Request) -> str:
    """The table that the reader came from, without what it said was done."""
    came = urlsplit(request.headers.get("referer", ""))
    return f"/runs?{came.query}" if came.path == "/runs" and came.query else "/runs"


def _led_back(back: str, did: str, chosen: list[int]) -> RedirectResponse:
    """To the table, which says what was done; nowhere else."""
    query = urlsplit(back).query if back.startswith("/runs") else ""
    kept = [(name, value) for name, value in parse_qsl(query) if name not in {"did", "job"}]
    said = [("did", did), *(("job", str(number)) for number in chosen)]
    return RedirectResponse(f"/runs?{urlencode([*kept, *said])}", HTTPStatus.SEE_OTHER)
