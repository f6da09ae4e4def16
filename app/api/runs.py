"""The table of runs over REST: what a page shows as a file, and the views saved under a name.

What one does to a run is at its job: PATCH and DELETE /api/v1/jobs/{job_id}.
"""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from app.forms.requests import REST, json_object, takes
from app.web import run_file, table_file
from app.web.dependencies import DatabaseDep, RunTablesDep
from app.web.run_view import ViewDep, wanted_columns
from app.web.table_file import MEDIA_TYPES, Form
from worker.queue import run_views
from worker.queue.run_views import SavedView

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@router.get("", response_class=StreamingResponse)
def table(
    tables: RunTablesDep,
    view: ViewDep,
    form: Annotated[Form, Query(alias="format")] = "json",
) -> StreamingResponse:
    """The runs that a filter leaves, in order: `?q=lr:1e-5 gain:>3&sort=-gain&columns=lr,train/kl`.

    Differences come in points with the ends of their 95 % interval, as csv, parquet or json.
    """
    found = tables.table(view.asked)
    columns = run_file.columns_of(found, [one for one, _ in wanted_columns(found, view)])
    rows = run_file.rows_of(found.runs, columns)
    pieces = table_file.written(rows, run_file.types_of(columns), form)
    headers = {"content-disposition": f'attachment; filename="runs.{form}"'}
    return StreamingResponse(pieces, media_type=MEDIA_TYPES[form], headers=headers)


@router.get("/views")
def views(database: DatabaseDep) -> list[SavedView]:
    """The views saved under a name, by name."""
    return run_views.saved_views(database)


@router.post("/views", status_code=201, openapi_extra=takes(SavedView))
async def save_view(request: Request, database: DatabaseDep) -> SavedView:
    """Keep a view under its name; one of that name is taken over."""
    body = await json_object(request, '{"name": "mine", "query": "q=tag:night"}')
    return await anyio.to_thread.run_sync(_save, database, body)


@router.delete("/views/{name}", status_code=204)
def drop_view(name: str, database: DatabaseDep) -> None:
    """Forget a view."""
    run_views.drop_view(database, name)


def _save(database: DatabaseDep, body: dict[str, Any]) -> SavedView:
    return run_views.save_view(database, body, actor=REST)
