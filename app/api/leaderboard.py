"""The leaderboard over REST: a page of checkpoints, pairs of scores, and every score as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from app.web.dependencies import DatabaseDep
from app.web.score_file import written
from app.web.table_file import MEDIA_TYPES, Form
from worker.read.scores.leaderboard import (
    Conditions,
    Leaderboard,
    Wanted,
    every_score,
    leaderboard,
)
from worker.read.scores.pairs import MOST_PAIRS, PairRef, Pairs, compare_pairs

router = APIRouter(prefix="/api/v1/leaderboard", tags=["leaderboard"])


class Exported(Conditions):
    """Which scores, and in which form."""

    format: Form = "json"
    """csv, parquet (with the extra `parquet`) or json."""


@router.get("")
def show(database: DatabaseDep, wanted: Annotated[Wanted, Query()]) -> Leaderboard:
    """One page: checkpoints in the order of one column's scores, with what they scored in the
    others. Benches are never added up.
    """
    return leaderboard(database, wanted)


@router.get("/pairs")
def pairs(
    database: DatabaseDep,
    pair: Annotated[list[PairRef], Query(min_length=1, max_length=MOST_PAIRS)],
) -> Pairs:
    """`?pair=JOB.KEY~JOB.KEY`: the second score against the first, row by row where the rows are
    the same; p corrected for all pairs that are asked for at once.
    """
    return compare_pairs(database, pair)


@router.get("/scores", response_class=StreamingResponse)
def scores(database: DatabaseDep, wanted: Annotated[Exported, Query()]) -> StreamingResponse:
    """Every score that meets the conditions as one table: a row for each checkpoint and column."""
    found = written(every_score(database, wanted), wanted.format)
    name = f'attachment; filename="scores.{wanted.format}"'
    headers = {"content-disposition": name}
    return StreamingResponse(found, media_type=MEDIA_TYPES[wanted.format], headers=headers)
