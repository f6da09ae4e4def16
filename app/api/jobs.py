"""Jobs over REST: enqueue, list, look. Nothing here runs one: a POST only writes a queue row."""

from __future__ import annotations

import json
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from app.parts import DatabasePart, JobId
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kinds import parse_yaml, problems_of, text_problems
from worker.database import Database
from worker.jobs import queue, views
from worker.jobs.states import State

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


class NewJob(BaseModel):
    """The body of a POST: a kind, and its config as JSON or as a YAML document."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: str = Field(max_length=100)
    """Name of a registered kind."""
    config: dict[str, Any] | None = None
    """The settings."""
    yaml: str | None = None
    """The same as a YAML text; give one of the two."""
    name: str | None = None
    """What people call the job."""

    @model_validator(mode="after")
    def _one_of_two(self) -> NewJob:
        if self.config is not None and self.yaml is not None:
            raise ValueError("holds both config and yaml; give one of the two")
        return self


class JobPage(BaseModel):
    """Newest first; `before` of the next page, or null on the last one."""

    jobs: list[views.JobView]
    next_before: int | None


@router.get("")
def list_jobs(
    database: DatabasePart,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: State | None = None,
) -> JobPage:
    """One page of jobs by keyset: `?before=` the smallest id seen."""
    found = views.list_jobs(database, before=before, limit=limit, state=state)
    return JobPage(jobs=found, next_before=found[-1].id if len(found) == limit else None)


@router.post(
    "",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": NewJob.model_json_schema()}},
        }
    },
)
async def create_job(request: Request, database: DatabasePart) -> JSONResponse:
    """Validate and enqueue; the answer is the queued job and where to look at it."""
    wanted = _new_job(await _json_body(request))
    job = await anyio.to_thread.run_sync(_enqueue, database, wanted)
    return JSONResponse(
        job.model_dump(mode="json"), 201, headers={"Location": f"/api/v1/jobs/{job.id}"}
    )


@router.get("/{job_id}")
def get_job(job_id: JobId, database: DatabasePart) -> views.JobView:
    """One job with its resolved config and its live or final result."""
    return views.get_job(database, job_id)


@router.get("/{job_id}/metrics")
def get_metrics(
    job_id: JobId,
    database: DatabasePart,
    series: Annotated[list[str] | None, Query(max_length=50)] = None,
) -> dict[str, list[tuple[int, float]]]:
    """Measured values as {series: [[step, value], …]}; `?series=` (repeatable) picks some."""
    views.get_job(database, job_id)
    return views.metrics(database, job_id, series)


@router.get("/{job_id}/events")
def get_events(job_id: JobId, database: DatabasePart) -> list[views.AuditView]:
    """The audit: who moved the job, when and why."""
    views.get_job(database, job_id)
    return views.audit(database, job_id)


def _enqueue(database: Database, wanted: NewJob) -> views.JobView:
    raw = parse_yaml(wanted.yaml) if wanted.yaml is not None else wanted.config or {}
    job_id = queue.enqueue(database, wanted.kind, raw, actor="rest", name=wanted.name)
    return views.get_job(database, job_id)


async def _json_body(request: Request) -> Any:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(
            415, f"the body is {media_type or 'of no type'}; send JSON with application/json"
        )
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise _body_error(f"is not JSON: {reason}", "send one JSON object") from error


def _new_job(value: Any) -> NewJob:
    if not isinstance(value, dict):
        raise _body_error("is not a JSON object", 'send {"kind": …, "config": {…}}')
    if unwritable := text_problems(value):
        raise ConfigError(unwritable)
    try:
        return NewJob.model_validate(value)
    except ValidationError as error:
        raise ConfigError(problems_of(error, NewJob)) from error


def _body_error(problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem("(body)", None, problem, remedy)])
