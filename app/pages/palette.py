"""What the command palette offers for what was typed: pages, runs, orders of the table, deeds.

Each is an address, but for Run now, which is a form sent to the one route that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse

from app.text import run_cells
from app.web.dependencies import NO_NUL, RunTablesDep
from app.web.navigation import NAVIGATION
from worker.read.runs.columns import verdict_word
from worker.read.runs.table import Reading
from worker.screen import folded

router = APIRouter(include_in_schema=False)

MOST_RUNS = 8
MOST = 16


class Offer(NamedTuple):
    """One line."""

    group: str
    words: str
    address: str
    note: str = ""
    post: bool = False
    """A form without fields that is sent there, instead of a page that is opened."""


DEEDS = (
    Offer("Do", "Run now", "/drains?back=/queue", "starts the queue", post=True),
    Offer("Do", "Stop all…", "/stop", "asks first"),
    Offer("Do", "New job", "/new"),
    Offer("Do", "Archived runs", "/runs?archived=true"),
)


@router.get("/palette")
def palette(
    tables: RunTablesDep, q: Annotated[str, Query(max_length=100, pattern=NO_NUL)] = ""
) -> JSONResponse:
    """The lines that hold what was typed, by group."""
    typed = folded(q.strip())
    pages = [Offer("Pages", one.name, one.address, one.answers) for one in NAVIGATION]
    plain = [offer for offer in (*pages, *DEEDS) if typed in folded(offer.words)]
    found = [*_runs(tables.reading(), typed), *plain] if typed else plain
    return JSONResponse([offer._asdict() for offer in found[:MOST]])


def _runs(reading: Reading, typed: str) -> Iterator[Offer]:
    named = (run for run in reading.runs if typed in folded(run.name) or typed == f"#{run.id}")
    for run in islice(named, MOST_RUNS):
        gain = f" {run_cells.difference(run.change)}" if run.change else ""
        said = f"#{run.id}, {verdict_word(run)}{gain}"
        yield Offer("Runs", run.name, f"/jobs/{run.id}", said)
    for column in reading.columns.benches:
        words = f"Sort runs by {column.key}"
        if typed in folded(words):
            yield Offer("Runs", words, f"/runs?sort=-{column.key}")
