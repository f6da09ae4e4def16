"""Sweeps over REST: one config with lists becomes several jobs, all of them or none."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from app.api.jobs import NewJob
from app.forms.requests import REST, json_object, key_of, takes, wanted_job
from app.web.dependencies import SETTLED, DatabaseDep, JobId
from worker.db.connection import Database
from worker.queue import control, sweeps
from worker.read import jobs
from worker.read.room import cautions_here

router = APIRouter(prefix="/api/v1/sweeps", tags=["sweeps"])


@router.post("", status_code=201, openapi_extra=takes(NewJob, keyed=True))
async def create_sweep(request: Request, database: DatabaseDep) -> JSONResponse:
    """Queue a job for every combination of the values in `sweep`; with their `cautions`.

    With an `Idempotency-Key` the same request is answered by the same jobs, with 200.
    """
    example = '{"kind": …, "config": {…}, "sweep": {"lr": [1e-4, 1e-3]}}'
    body = await json_object(request, example)
    return await anyio.to_thread.run_sync(_create, database, body, key_of(request))


@router.get("/{sweep_id}")
def get_sweep(sweep_id: JobId, database: DatabaseDep) -> jobs.SweepView:
    """The axes of a sweep and its jobs; `/api/v1/jobs?sweep=` shows them in full."""
    return jobs.get_sweep(database, sweep_id)


@router.post("/{sweep_id}/cancel", dependencies=SETTLED)
def cancel_sweep(sweep_id: JobId, database: DatabaseDep) -> dict[int, control.Done]:
    """Cancel every job of a sweep that is not over: {job: what came of it}."""
    return control.cancel_sweep(database, sweep_id, actor=REST)


def _create(database: Database, body: dict[str, Any], key: str | None) -> JSONResponse:
    wanted = wanted_job(body)
    done = sweeps.submit_sweep(database, wanted, actor=REST, key=key)
    headers = {"Location": f"/api/v1/sweeps/{done.sweep_id}"}
    found = jobs.get_sweep(database, done.sweep_id).model_dump(mode="json")
    found["cautions"] = [one.as_dict() for one in cautions_here(database, wanted)]
    return JSONResponse(found, 200 if done.repeated else 201, headers=headers)
