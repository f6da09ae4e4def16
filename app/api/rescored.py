"""Completions judged again over REST: POST has them judged by a child process, GET reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from app.web.dependencies import DatabaseDep, JobId
from engine.contract.rescored import MOST_VERIFIERS, RescoreAsk, Rescored
from worker.db.connection import Database
from worker.read import jobs, rescoring
from worker.read.benches import check_split
from worker.read.samples.query import SplitName

router = APIRouter(prefix="/api/v1/jobs/{job_id}/rescored", tags=["samples"])


class Wish(BaseModel):
    """Which completions of a job, and who judges."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    verifier: list[Annotated[str, Field(max_length=200)]] = Field(
        min_length=1, max_length=MOST_VERIFIERS
    )
    """Names of verifiers; the others are held against the first."""
    split: SplitName | None = None
    """select, report or the name of a bench; all of them without one."""
    step: int | None = Field(None, ge=0, le=10**12)
    """The one that held-out picked, else the newest."""
    by: str | None = Field(None, max_length=80)
    """A column that splits the rows, e.g. level."""


class Judging(BaseModel):
    """They are being judged, or were."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    since: float | None
    """When that began, in Unix seconds."""
    found: Rescored | None
    """Null while it goes on: GET it later."""


@router.post("", responses={202: {"model": Judging}})
def judge(job_id: JobId, database: DatabaseDep, wish: Wish, response: Response) -> Judging:
    """Judged beside this process; 202 while that goes on, the same request is the same work."""
    run, ask = _asked(database, job_id, wish)
    looked = rescoring.look(ask, run)
    if looked.found is None:
        response.status_code = 202
    return Judging(since=looked.since, found=looked.found)


@router.get("")
def read(job_id: JobId, database: DatabaseDep, wish: Annotated[Wish, Query()]) -> Rescored:
    """What they came to; 404 before they were judged."""
    run, ask = _asked(database, job_id, wish)
    found = rescoring.kept(ask, run)
    if found is None:
        told = f"these completions of job {job_id} were not judged so; POST the same to have it"
        raise HTTPException(404, told)
    return found


def _asked(database: Database, job_id: int, wish: Wish) -> tuple[Path, RescoreAsk]:
    job = jobs.get_job(database, job_id)
    check_split(job, wish.split)
    target = rescoring.target_of(job, wish.step)
    return job.run_dir, rescoring.ask_of(target, None, wish.verifier, split=wish.split, by=wish.by)
