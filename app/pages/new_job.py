"""New job: a form made from the kind's schema, or a pasted YAML; the same path, the same errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.forms import build, raw_config
from app.parts import DatabasePart
from app.templating import page
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kinds import Kind, get_kind, kinds, parse_yaml, text_problems
from worker.database import Database
from worker.jobs import queue

router = APIRouter(prefix="/new", include_in_schema=False)

DEFAULT_KIND = "rl_run"
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


@router.get("")
def new_job(request: Request, kind: str = DEFAULT_KIND) -> HTMLResponse:
    """The empty form of a kind."""
    return _page(request, get_kind(kind), {})


@router.post("")
async def create(request: Request, database: DatabasePart) -> Response:
    """Enqueue and go to the run's page; or the form again, each problem beside its field."""
    typed = await _typed(request)
    kind = get_kind(typed.get("kind", ""))
    try:
        job_id = await anyio.to_thread.run_sync(_enqueue, database, kind, typed)
    except ConfigError as error:
        return _page(request, kind, typed, error.problems)
    return RedirectResponse(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)


def _enqueue(database: Database, kind: Kind, typed: Mapping[str, str]) -> int:
    if unwritable := text_problems(dict(typed)):
        raise ConfigError(unwritable)
    raw = parse_yaml(typed["yaml"]) if "yaml" in typed else raw_config(kind, typed)
    name = typed.get("name", "").strip() or None
    return queue.enqueue(database, kind.name, raw, actor="browser", name=name)


async def _typed(request: Request) -> dict[str, str]:
    """The form's fields; of a name given twice the last one counts."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in FORM_TYPES:
        raise HTTPException(415, f"the body is {media_type or 'of no type'}; send a form")
    fields = await request.form(max_files=0)
    return {
        name: value.replace("\r\n", "\n")
        for name, value in fields.multi_items()
        if not isinstance(value, UploadFile)
    }


def _page(
    request: Request,
    kind: Kind,
    typed: Mapping[str, str],
    problems: Sequence[ConfigProblem] = (),
) -> HTMLResponse:
    context: dict[str, Any] = {
        "title": f"{'Problems · ' if problems else ''}New job",
        "kinds": list(kinds().values()),
        "form": build(kind, typed, problems),
        "typed": typed,
        "problems": problems,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if problems else HTTPStatus.OK
    return page(request, "new_job.html", context, status=status)
