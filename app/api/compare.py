"""Comparison over REST: some runs against the first of them, and their rows by who solved them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.web.dependencies import DatabaseDep
from worker.read.comparison.compare import (
    MOST_JOBS,
    Comparison,
    RowPage,
    Which,
    compare_jobs,
    find_rows,
)
from worker.read.comparison.groups import GroupComparison, compare_groups

router = APIRouter(prefix="/api/v1/compare", tags=["compare"])

JobNumber = Annotated[int, Query(ge=1, le=2**63 - 1)]


@router.get("")
def compare(
    database: DatabaseDep,
    job: Annotated[list[Annotated[int, Query(ge=1, le=2**63 - 1)]], Query(max_length=MOST_JOBS)],
) -> Comparison:
    """`?job=1&job=2`: two jobs or more; each is held against the first one."""
    return compare_jobs(database, job)


@router.get("/groups")
def groups(database: DatabaseDep, a: JobNumber, b: JobNumber) -> GroupComparison:
    """Two seed groups, each named by any of its runs: tested between runs, not over their rows."""
    return compare_groups(database, a, b)


@router.get("/rows")
def rows(
    database: DatabaseDep,
    *,
    a: JobNumber,
    b: JobNumber,
    which: Which = Which.LOST,
    after: Annotated[int, Query(ge=-1, le=10**12)] = -1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> RowPage:
    """Held-out rows of two jobs by who solved them, with what both wrote."""
    return find_rows(database, a, b, which, after=after, limit=limit)
