"""Jobs over REST: enqueue, list, look, change, stop. Nothing here runs one: a POST writes rows."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, Response

from app.charts.drawings import View, curves_json
from app.forms.check_report import CheckReport, dry_run
from app.forms.requests import REST, json_object, key_of, optional_body, takes, wanted_job
from app.text.checkpoint import Checkpoint, checkpoint_of
from app.text.outcome import outcome_of
from app.web.dependencies import SETTLED, DatabaseDep, JobId
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of
from worker.db.connection import Database
from worker.queue import control, deletion, order
from worker.queue.control import Done, Edit
from worker.queue.deletion import Deletion
from worker.queue.order import Move
from worker.queue.states import State
from worker.queue.submission import Submission
from worker.queue.submit import submit
from worker.read import jobs
from worker.read.groups import Group, group_of
from worker.read.jobs import AttemptView, AuditView, JobView
from worker.read.room import cautions_here
from worker.read.series import MOST_POINTS, Steps, gaps_of, values, with_gaps

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])


class NewJob(Submission):
    """The body of a POST: a kind, its config as JSON or as a YAML text, its place in the queue.

    `seeds` may stand in the config too, and makes a sweep of it.
    """

    yaml: str | None = None
    """The settings as a YAML text, instead of `config`."""
    seeds: list[int] | None = None
    """Short for a sweep over the kind's seed with one held-out split: a run of each."""


class Said(BaseModel):
    """How a run stands, in words."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    word: str
    """gain, loss, no gain proven, pool only, no verdict; else running, queued, failed, …"""
    sentence: str
    """The first line of its page."""
    then: str
    """What follows from it; empty where nothing does."""


class JobAndCheckpoint(JobView):
    """A job, how it stands in words, and the checkpoint that it chose."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    outcome: Said
    checkpoint: Checkpoint | None
    """Where it is, what it is, and a command each to load, merge, serve, continue and export it."""


class JobPage(BaseModel):
    """Newest first; `before` of the next page, or null on the last one."""

    jobs: list[JobView]
    next_before: int | None


class Stopped(BaseModel):
    """What came of a request to stop a job."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    outcome: Done
    """at once: it is over · asked: its engine ends at the next checkpoint · before: it was asked
    already."""
    job: JobView


class Foreseen(BaseModel):
    """What a deletion gives back."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    job_id: int
    bytes: int
    refused: str | None
    """Why it must not be, in a sentence."""
    descendants: list[int]
    """Runs that are over and began from its checkpoints."""

    @classmethod
    def of(cls, found: Deletion) -> Foreseen:
        """As REST says it."""
        return cls(
            job_id=found.job_id,
            bytes=found.bytes,
            refused=found.refused,
            descendants=found.descendants,
        )


class Retry(BaseModel):
    """How a job is tried again."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    fresh: bool = Field(default=False, strict=True)
    """As a new job, from the beginning."""


class DrawnSeries(BaseModel):
    """A curve in few points: for each its last step, its lowest, highest and last value."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    n: int
    """How many values the points stand for."""
    stretch: int
    """Steps in a point; 1: the values themselves."""
    points: list[tuple[int, float, float, float]]
    """[last step, lowest, highest, last value], …, values with seven digits."""
    gaps: list[tuple[int, int]]
    """[first step, last step], …: what was measured there is no number."""


@router.get("")
def list_jobs(
    database: DatabaseDep,
    *,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: State | None = None,
    tag: Annotated[str | None, Query(max_length=100)] = None,
    sweep: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> JobPage:
    """One page of jobs by keyset: `?before=` the smallest id seen."""
    found = jobs.list_jobs(
        database, before=before, limit=limit, state=state, tag=tag, sweep_id=sweep
    )
    return JobPage(jobs=found, next_before=found[-1].id if len(found) == limit else None)


@router.post("", status_code=201, openapi_extra=takes(NewJob, keyed=True))
async def create_job(request: Request, database: DatabaseDep) -> JSONResponse:
    """Validate and enqueue; the answer is the queued job, where to look at it, and `cautions`.

    With an `Idempotency-Key` the same request is answered by the same job, with 200.
    """
    body = await json_object(request, '{"kind": …, "config": {…}}')
    return await anyio.to_thread.run_sync(_create, database, body, key_of(request))


@router.post("/check", openapi_extra=takes(NewJob))
async def check_job(request: Request, database: DatabaseDep) -> CheckReport:
    """What a job, or a sweep, would need, cost and meet; it is refused as it would be. No job.

    A finished result of the same job is no refusal here: it is told under `tried`.
    """
    body = await json_object(request, '{"kind": …, "config": {…}}')
    return await anyio.to_thread.run_sync(_check, database, body)


@router.get("/{job_id}")
def get_job(job_id: JobId, database: DatabaseDep) -> JobAndCheckpoint:
    """One job with its resolved config, its live or final result, and what it chose."""
    job = jobs.get_job(database, job_id)
    said = outcome_of(job).as_dict()
    known = {name: getattr(job, name) for name in JobView.model_fields}
    return JobAndCheckpoint(**known, outcome=Said(**said), checkpoint=checkpoint_of(job))


@router.patch("/{job_id}", openapi_extra=takes(Edit))
async def edit_job(request: Request, job_id: JobId, database: DatabaseDep) -> JobView:
    """Change priority, start time or parents of a queued job, and of any job its tags, name, note
    and whether it is archived; what is not sent stays.
    """
    body = await json_object(request, '{"priority": 5}')
    return await anyio.to_thread.run_sync(_edit, database, job_id, body)


@router.get("/{job_id}/deletion")
def foresee_deletion(job_id: JobId, database: DatabaseDep) -> Foreseen:
    """What deleting a run would free, why it must not be, and which runs began from its files."""
    return Foreseen.of(deletion.foreseen(database, job_id))


@router.delete("/{job_id}", dependencies=SETTLED)
def delete_job(job_id: JobId, database: DatabaseDep, *, descendants: bool = False) -> Foreseen:
    """Throw away a run's files, metrics, scores and tags, for good; what it cost and who did what
    stays. `?descendants=true`: though runs began from its checkpoints.
    """
    done = deletion.delete_run(database, job_id, actor=REST, descendants_too=descendants)
    return Foreseen.of(done)


@router.post("/{job_id}/cancel", dependencies=SETTLED)
def cancel_job(job_id: JobId, database: DatabaseDep) -> Stopped:
    """End a job for good: a queued one at once, a running one at its next checkpoint."""
    outcome = control.cancel(database, job_id, actor=REST)
    return Stopped(outcome=outcome, job=jobs.get_job(database, job_id))


@router.post("/{job_id}/requeue", dependencies=SETTLED)
def requeue_job(job_id: JobId, database: DatabaseDep) -> Stopped:
    """Let a running job write a checkpoint and go back into the queue."""
    outcome = control.requeue(database, job_id, actor=REST)
    return Stopped(outcome=outcome, job=jobs.get_job(database, job_id))


@router.post("/{job_id}/retry", dependencies=SETTLED, openapi_extra=takes(Retry, required=False))
async def retry_job(
    request: Request, job_id: JobId, database: DatabaseDep, *, fresh: bool | None = None
) -> JobView:
    """Queue a job that did not succeed again, to resume; `fresh` makes a new one.

    That comes as `?fresh=true` or as `{"fresh": true}`.
    """
    wanted = await optional_body(request, {"fresh": fresh}, '{"fresh": true}')
    try:
        anew = Retry.model_validate(wanted).fresh
    except ValidationError as error:
        raise ConfigError(problems_of(error, Retry)) from error
    return await anyio.to_thread.run_sync(_retry, database, job_id, anew)


@router.post("/{job_id}/move", openapi_extra=takes(Move))
async def move_job(request: Request, job_id: JobId, database: DatabaseDep) -> JobView:
    """Let a queued job run before or behind another one, or `to` the top or the bottom."""
    body = await json_object(request, '{"to": "top"}')
    return await anyio.to_thread.run_sync(_move, database, job_id, body)


@router.get(
    "/{job_id}/metrics",
    response_model=dict[str, list[tuple[int, float | None]]] | dict[str, DrawnSeries],
)
def get_metrics(
    job_id: JobId,
    database: DatabaseDep,
    *,
    series: Annotated[list[str] | None, Query(max_length=50)] = None,
    first: Annotated[int | None, Query(alias="from", ge=0, le=2**31 - 1)] = None,
    last: Annotated[int | None, Query(alias="to", ge=0, le=2**31 - 1)] = None,
    points: Annotated[int | None, Query(ge=10, le=MOST_POINTS)] = None,
) -> Response:
    """Measured values as {series: [[step, value], …]}; `?series=` (repeatable) picks some.
    null stands where a run's gap in them begins: what was measured there is no number.

    With `?points=` each series comes as a curve of at most so many points, whatever its length.
    """
    result = jobs.get_job(database, job_id).result
    steps = Steps(first, last)
    broken = gaps_of(result, steps).items()
    gaps = {name: found for name, found in broken if series is None or name in series}
    if points is None:
        return JSONResponse(with_gaps(values(database, job_id, series, steps), gaps))
    drawn = curves_json(database, job_id, series, View(steps=steps, most=points), gaps)
    return Response(drawn, media_type="application/json")


@router.get("/{job_id}/events")
def get_events(job_id: JobId, database: DatabaseDep) -> list[AuditView]:
    """The audit: who moved the job, when and why."""
    jobs.get_job(database, job_id)
    return jobs.audit(database, job_id)


@router.get("/{job_id}/group")
def get_group(job_id: JobId, database: DatabaseDep) -> Group | None:
    """The runs that differ from it in their seed alone, and how far their scores spread; null where
    its kind has no seed.
    """
    return group_of(database, job_id)


@router.get("/{job_id}/attempts")
def get_attempts(job_id: JobId, database: DatabaseDep) -> list[AttemptView]:
    """Every ended attempt: what it held the lane for, and what came of it."""
    return jobs.attempts(database, job_id)


def _create(database: Database, body: dict[str, Any], key: str | None) -> JSONResponse:
    wanted = wanted_job(body)
    if wanted.sweep is not None:
        remedy = "send it to /api/v1/sweeps"
        raise ConfigError([ConfigProblem("sweep", None, "makes several jobs", remedy)])
    done = submit(database, wanted, actor=REST, key=key)
    job = jobs.get_job(database, done.job_id)
    headers = {"Location": f"/api/v1/jobs/{job.id}"}
    body = job.model_dump(mode="json")
    body["cautions"] = [found.as_dict() for found in cautions_here(database, wanted)]
    return JSONResponse(body, 200 if done.repeated else 201, headers=headers)


def _check(database: Database, body: dict[str, Any]) -> CheckReport:
    return CheckReport.of(dry_run(database, wanted_job(body)).check)


def _retry(database: Database, job_id: int, fresh: bool) -> JobView:
    if fresh:
        job_id = control.retry_fresh(database, job_id, actor=REST)
    else:
        control.retry(database, job_id, actor=REST)
    return jobs.get_job(database, job_id)


def _edit(database: Database, job_id: int, body: dict[str, Any]) -> JobView:
    control.edit(database, job_id, body, actor=REST)
    return jobs.get_job(database, job_id)


def _move(database: Database, job_id: int, body: dict[str, Any]) -> JobView:
    order.move(database, job_id, body, actor=REST)
    return jobs.get_job(database, job_id)
