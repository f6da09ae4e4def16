"""The table of runs: which one is best, on what, and by how much. The view is the address."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, JSONResponse

from app.charts.run_style import Slot, slot_of
from app.charts.scale import Scale
from app.charts.sparkline import Pair, pair_of_lines
from app.text import run_cells, wording
from app.text.run_cells import Cell
from app.web.dependencies import DatabaseDep, RunTablesDep
from app.web.run_tables import RunTables
from app.web.run_view import View, ViewDep, wanted_columns
from app.web.templating import environment, page
from engine.contract.between_runs import Spread
from engine.contract.errors import ConfigError
from worker.queue.run_views import saved_views
from worker.queue.states import State
from worker.read import feed
from worker.read.comparison.compare import MOST_JOBS
from worker.read.runs.columns import Column, verdict_word
from worker.read.runs.run import Change, Run
from worker.read.runs.table import NO_GROUPS, RECIPE, Asked, Group, Table, matching

router = APIRouter(include_in_schema=False)

LAST_NIGHT = "age:<24h"
BUILT_IN_VIEWS = (
    ("All", ""),
    ("Gains", "verdict:gain"),
    ("Last 24 h", LAST_NIGHT),
    ("Failed", "state:failed"),
)
GROUPINGS = (RECIPE, NO_GROUPS, "base", "tuning", "state", "kind", "sweep", "tag")
KEPT_S = 60.0
"""A drawn table serves all who look at the same view while nothing is written: days pass."""


@dataclass(frozen=True)
class Head:
    """One cell of the head."""

    title: str
    note: str
    address: str
    sorted: str | None
    """ascending, descending; None: by another column."""
    column: Column
    wide: str

    @property
    def arrow(self) -> str:
        """Which way."""
        return {"ascending": " ↑", "descending": " ↓"}.get(self.sorted or "", "")


@dataclass(frozen=True)
class Row:
    """One run."""

    run: Run
    slot: Slot
    verdict: str
    cells: Sequence[Cell]
    mark: Markup
    lift: Cell
    scores: tuple[str, str] | None
    spark: Pair | None
    why: str
    """In the place of its scores: the cause of its end, what it waits for, how far it is."""

    @property
    def glyph(self) -> str:
        """Of the verdict."""
        return run_cells.GLYPHS.get(self.verdict, "–")


@dataclass(frozen=True)
class GroupRows:
    """The head of a group, where it has one, and its rows."""

    title: str | None
    size: str
    n: str
    cells: Sequence[Cell]
    mark: Markup
    lift: Cell
    rows: Sequence[Row]

    @property
    def compared(self) -> str | None:
        """The comparison of its runs; None of one alone, and of more than are compared at once."""
        if not 1 < len(self.rows) <= MOST_JOBS:
            return None
        return f"/compare?{urlencode([('job', row.run.id) for row in self.rows])}"


@dataclass(frozen=True)
class Best:
    """The run that leads in one column."""

    title: str
    run: Run
    change: str
    note: str


@dataclass(frozen=True)
class Shown:
    """The page's table."""

    table: Table
    view: View
    wanted: Sequence[tuple[Column, str]]
    """With from which width on each is shown."""

    @classmethod
    def of(cls, table: Table, view: View) -> Shown:
        """With the columns that were asked for, or the usual ones that these runs have."""
        return cls(table, view, tuple(wanted_columns(table, view)))

    @cached_property
    def scale(self) -> Scale:
        """The axis that every row shares."""
        return Scale.of(run.change for run in self.table.runs if run.change)

    @cached_property
    def gain(self) -> Column:
        """The column of the verdict."""
        return self.table.columns.find("gain")

    def heads(self) -> Iterator[Head]:
        """Of the columns behind the fixed ones."""
        return (self.head(column, wide) for column, wide in self.wanted)

    def head(self, column: Column, wide: str = "") -> Head:
        """Of one column, with the rows that it was measured on where all runs share them."""
        sort = self.view.asked.sort
        by = self.table.columns.find(sort.removeprefix("-")).key == column.key
        order = ("descending" if sort.startswith("-") else "ascending") if by else None
        address = self.view.sorted_by(column.key)
        return Head(run_cells.title(column), self._rows(column), address, order, column, wide)

    def _rows(self, column: Column) -> str:
        if column.change is None:
            return ""
        measured = {change.n for run in self.table.runs if (change := column.change(run))}
        return f"n {measured.pop()}" if len(measured) == 1 and None not in measured else "points"

    def groups(self) -> Iterator[GroupRows]:
        """All rows."""
        return (self._group(group) for group in self.table.groups)

    def _group(self, group: Group) -> GroupRows:
        lift = run_cells.of_group(self.gain, group)
        mean = group.between(self.gain)
        change = None
        if group.title and mean:
            low, high = mean.ci95 or (None, None)
            change = Change(mean.mean, low, high)
        words = f"mean {run_cells.in_words(change)} over {mean.n} runs" if change and mean else ""
        n = len(group.runs)
        return GroupRows(
            title=group.title,
            size="1 run" if n == 1 else f"{n} runs",
            n=_averaged(mean),
            cells=[run_cells.of_group(column, group, wide) for column, wide in self.wanted]
            if group.title
            else (),
            mark=self.scale.mark(change, "group", words),
            lift=lift,
            rows=[self._row(run) for run in group.runs],
        )

    def _row(self, run: Run) -> Row:
        verdict = verdict_word(run)
        return Row(
            run=run,
            slot=slot_of(run.id),
            verdict=verdict,
            cells=[run_cells.of_run(column, run, wide) for column, wide in self.wanted],
            mark=self.scale.mark(
                run.change, verdict, run_cells.in_words(run.change) if run.change else ""
            ),
            lift=run_cells.of_run(self.gain, run),
            scores=run_cells.before_after(run.change),
            spark=pair_of_lines(run.gates, run.pool),
            why=_why(run),
        )

    def best(self) -> Iterator[Best]:
        """Who leads, on held-out and on each bench that is shown."""
        for column in (
            self.gain,
            *(column for column, _ in self.wanted if column.source == "bench"),
        ):
            run = self.table.best(column)
            change = column.change(run) if run and column.change else None
            if run and change:
                rows = f", n {change.n}" if change.n else ""
                note = f"{run_cells.plus_minus(change)}{rows}"
                yield Best(self._led(column), run, run_cells.difference(change), note)

    def _led(self, column: Column) -> str:
        if column.key != "gain":
            return run_cells.title(column)
        judged = sum(run.change is not None and not run.demo for run in self.table.runs)
        return f"Best of {judged} on held-out"

    @property
    def keys(self) -> str:
        """The columns as they stand in the address."""
        return ", ".join(column.key for column, _ in self.wanted)

    @property
    def sums(self) -> str:
        """`39 runs, 66 h, $40.67`."""
        runs = self.table.runs
        seconds = sum(run.seconds or 0.0 for run in runs)
        usd = sum(run.usd or 0.0 for run in runs)
        counted = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        return f"{counted}, {wording.duration(seconds)}, ${usd:.2f}"


@router.get("/runs")
def runs(
    request: Request, database: DatabaseDep, tables: RunTablesDep, view: ViewDep
) -> HTMLResponse:
    """The page, or with `?part=live` its table."""
    position = feed.last_change_id(database)
    shown, refused = _shown(tables, view)
    table = shown.table
    moment = (wording.told_in(), int(time.time() / KEPT_S))
    context = {
        "title": "Runs",
        "position": position,
        "view": view,
        "shown": shown,
        "drawn": tables.kept((view, bool(refused), *moment), lambda: _drawn(shown, view)),
        "refused": refused,
        "views": list(
            _views(table, view, [(one.name, one.query) for one in saved_views(database)])
        ),
        "groupings": GROUPINGS,
        "live": view.address(part="live"),
        "empty": not table.every and not view.asked.archived,
        "toast": _toast(request.query_params),
    }
    return page(request, "runs.html", context)


def _drawn(shown: Shown, view: View) -> Markup:
    """Who leads, and the table."""
    parts: Any = environment().get_template("runs_macros.html").module
    drawn: Markup = parts.best(shown) + parts.table(shown, view)
    return drawn


@router.get("/runs/match")
def match(tables: RunTablesDep, view: ViewDep) -> JSONResponse:
    """Which of the runs a filter leaves, while it is typed."""
    reading = tables.reading(archived=view.asked.archived)
    try:
        found = matching(reading.runs, view.asked.q, reading.columns)
    except ConfigError as error:
        return JSONResponse({"problem": str(error)})
    return JSONResponse({"ids": [run.id for run in found], "of": len(reading.runs)})


@router.get("/runs/words")
def words(tables: RunTablesDep) -> JSONResponse:
    """Every column with what it says, for the completion of a filter and the choice of columns."""
    reading = tables.reading()
    return JSONResponse([[column.key, column.about] for column in reading.columns.all])


@dataclass(frozen=True)
class Toast:
    """What was just done, and the form that takes it back, where one does."""

    words: str
    undo: str | None
    """Where that form is sent."""
    jobs: Sequence[str]


DONE = {
    "tag": ("Tagged", None),
    "note": ("Noted", None),
    "name": ("Renamed", None),
    "archive": ("Archived", "/runs/restore"),
    "restore": ("Restored", "/runs/archive"),
    "delete": ("Deleted", None),
    "save": ("View saved.", None),
    "forget": ("View forgotten.", None),
}


def _toast(asked: QueryParams) -> Toast | None:
    words, undo = DONE.get(asked.get("did", ""), ("", None))
    if not words:
        return None
    numbers = [text for text in asked.getlist("job") if text.isdecimal()]
    counted = f" {len(numbers)} run{'' if len(numbers) == 1 else 's'}." if numbers else ""
    return Toast(words + counted, undo if numbers else None, numbers)


@dataclass(frozen=True)
class ViewLink:
    """A view with a name, and how many runs it holds."""

    name: str
    address: str
    n: int | None
    """None: its filter cannot be read any more."""
    current: bool
    saved: bool


def _shown(tables: RunTables, view: View) -> tuple[Shown, ConfigError | None]:
    """The table, and why it is not narrowed, ordered and filled as asked, where it cannot be."""
    try:
        return Shown.of(tables.table(view.asked), view), None
    except ConfigError as error:
        plain = replace(view, asked=Asked(archived=view.asked.archived))
        return Shown.of(tables.table(plain.asked), plain), error


def _views(table: Table, view: View, saved: Sequence[tuple[str, str]]) -> Iterator[ViewLink]:
    for name, q in BUILT_IN_VIEWS:
        address = replace(view, asked=replace(view.asked, q=q)).address()
        current = view.asked.q == q and not view.asked.archived
        yield ViewLink(name, address, _count(table, q), current, saved=False)
    here = view.address().partition("?")[2]
    for name, query in saved:
        q = dict(parse_qsl(query)).get("q", "")
        yield ViewLink(name, f"/runs?{query}", _count(table, q), query == here, saved=True)


def _count(table: Table, q: str) -> int | None:
    try:
        return len(matching(table.every, q, table.columns))
    except ConfigError:
        return None


def _averaged(mean: Spread | None) -> str:
    if mean is None:
        return ""
    if mean.ci95:
        return f"mean of {mean.n}"
    return "1 run, no ±" if mean.n == 1 else f"{mean.n} runs, no ±"


def _why(run: Run) -> str:
    if run.change is not None:
        return ""
    if run.state is State.RUNNING:
        step, most = run.figures.get("step"), run.figures.get("max_steps")
        return f"step {step} of {most}" if step is not None and most else "starting"
    if run.state is State.QUEUED:
        return run.defer_detail or "waits for its turn"
    return run.error or run.cause or ""
