"""A view of the table of runs: what an address asks for, and the address of another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query

from app.web.dependencies import NO_NUL
from worker.read.runs.columns import Column
from worker.read.runs.filter import LONGEST
from worker.read.runs.table import RECIPE, Asked, Table

USUAL = (
    *(("base", ""), ("lr", ""), ("kl_coef", ""), ("objective.loss", "w2"), ("tuning", "w2")),
    *(("steps", "w2"), ("data.source", "w3"), ("peak", "w3"), ("note", "w3")),
    *(("cost", ""), ("time", ""), ("ended", "")),
)
"""Columns without any wish, and from which width on (app/static/runs.css)."""
USUAL_BENCHES = 3
MAX_COLUMNS = 30
Text = Annotated[str, Query(max_length=2000, pattern=NO_NUL)]


@dataclass(frozen=True)
class View:
    """What the address says."""

    asked: Asked
    tall: bool = False
    """Rows of 32 px instead of 24."""

    def address(self, path: str = "/runs", **changed: Any) -> str:
        """The address of this view with some of it changed."""
        asked = self.asked
        known = {
            "q": asked.q,
            "sort": "" if asked.sort == "-gain" else asked.sort,
            "group": "" if asked.group == RECIPE else asked.group,
            "columns": ",".join(asked.columns),
            "archived": "true" if asked.archived else "",
            "rows": "32" if self.tall else "",
        }
        given = {name: value for name, value in {**known, **changed}.items() if value}
        return f"{path}?{urlencode(given)}" if given else path

    def sorted_by(self, key: str) -> str:
        """The address of the same by a column: the largest first, then turned round."""
        turned = key if self.asked.sort == f"-{key}" else f"-{key}"
        return self.address(sort="" if turned == "-gain" else turned)


def view_of(
    *,
    q: Annotated[str, Query(max_length=10 * LONGEST, pattern=NO_NUL)] = "",
    sort: Text = "",
    group: Text = "",
    columns: Text = "",
    archived: bool = False,
    rows: Text = "",
) -> View:
    """The view that an address asks for."""
    wanted = tuple(dict.fromkeys(key for name in columns.split(",") if (key := name.strip())))
    asked = Asked(q.strip(), sort or "-gain", group or RECIPE, archived, wanted[:MAX_COLUMNS])
    return View(asked, tall=rows == "32")


ViewDep = Annotated[View, Depends(view_of)]


def wanted_columns(table: Table, view: View) -> Iterator[tuple[Column, str]]:
    """The columns that were asked for, or the usual ones that these runs have, and from which width
    on each is shown. Raises ConfigError for one that there is not, where it was asked for.
    """
    columns = table.columns
    if view.asked.columns:
        yield from ((columns.find(key), "") for key in view.asked.columns)
        return
    (key, wide), *rest = USUAL
    yield columns.find(key), wide
    yield from ((column, "") for column in columns.benches[:USUAL_BENCHES])
    for key, wide in rest:
        if columns.has(key):
            yield columns.find(key), wide
