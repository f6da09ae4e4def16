"""Two seed groups side by side: is one config better than another, whatever the seed?"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from app.text import seeds
from app.web.dependencies import DatabaseDep
from app.web.templating import page
from worker.db.connection import Database
from worker.read.comparison.compare import CompareError
from worker.read.comparison.groups import compare_groups

router = APIRouter(prefix="/compare/groups", include_in_schema=False)

_Number = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get("")
def groups(
    request: Request, database: DatabaseDep, a: _Number = None, b: _Number = None
) -> HTMLResponse:
    """`?a=1&b=5`: each group is named by any of its runs; a form while one is missing."""
    context: dict[str, Any] = {
        "title": "compare seed groups",
        "chosen": (a, b),
        "problem": None,
        "found": None,
        "words": seeds,
    }
    if a is not None and b is not None:
        context |= _compared(database, a, b)
    return page(request, "compare_groups.html", context)


def _compared(database: Database, a: int, b: int) -> dict[str, Any]:
    try:
        return {"found": compare_groups(database, a, b)}
    except CompareError as error:
        return {"problem": str(error)}
