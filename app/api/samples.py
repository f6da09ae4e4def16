"""What a run wrote over REST: completions by step, split and fate; one prompt over the steps."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.web.dependencies import DatabaseDep, JobId
from worker.read import jobs
from worker.read.benches import check_split
from worker.read.samples.files import Split
from worker.read.samples.query import (
    HistoryPage,
    SamplePage,
    SplitName,
    Wanted,
    find_history,
    find_samples,
)

router = APIRouter(prefix="/api/v1/jobs/{job_id}/samples", tags=["samples"])


@router.get("")
def list_samples(
    job_id: JobId, database: DatabaseDep, wanted: Annotated[Wanted, Query()]
) -> SamplePage:
    """One page of completions, in the order of their file; `after` is the row of the last one."""
    job = jobs.get_job(database, job_id)
    check_split(job, wanted.split)
    return find_samples(job.run_dir, wanted)


@router.get("/history")
def history(
    job_id: JobId,
    database: DatabaseDep,
    id: Annotated[str, Query(max_length=1000)],  # noqa: A002 - the field's own name
    split: SplitName = Split.SELECT,
    before: Annotated[int | None, Query(ge=0, le=10**12)] = None,
) -> HistoryPage:
    """What the weights of each step answered to one prompt; older steps are `before` these."""
    job = jobs.get_job(database, job_id)
    check_split(job, split)
    return find_history(job.run_dir, split, id, before=before)
