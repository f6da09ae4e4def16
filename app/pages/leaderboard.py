"""The leaderboard: which checkpoint scored what on which bench, and is a difference real?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse

from app.text import scores
from app.web.dependencies import DatabaseDep
from app.web.plainly import require_plain
from app.web.templating import page
from engine.contract.errors import ConfigError
from engine.contract.problems import problems_of
from worker.db.connection import Database
from worker.read import feed
from worker.read.scores.leaderboard import MOST_COLUMNS, Conditions, Sort, Wanted, leaderboard
from worker.read.scores.pairs import MOST_PAIRS, REF, PairError, PairRef, Pairs, compare_pairs

router = APIRouter(include_in_schema=False)

_LISTS = ("bench", "pair")
_NAMES_SHOWN = 30
"""Benches to choose from; any other is asked for by its name."""


class View(Wanted):
    """What the address says: which scores, and which of them are held against each other."""

    pair: list[PairRef] = Field([], max_length=MOST_PAIRS)
    pick: str | None = Field(None, pattern=f"^{REF}$")
    """The first score of the next pair."""

    def address(self, **changed: Any) -> str:
        """The address of this view with some of it changed; a page of lines begins anew."""
        query = urlencode(self.fields(**changed))
        return f"/leaderboard?{query}" if query else "/leaderboard"

    def fields(self, **changed: Any) -> list[tuple[str, Any]]:
        """The same as the fields of a form."""
        kept = self.model_dump(exclude_defaults=True, exclude={"after"}) | changed
        listed = {n: value if isinstance(value, list) else [value] for n, value in kept.items()}
        return [
            (name, "true" if value is True else value)
            for name, values in listed.items()
            for value in values
            if value not in {None, False, ""}
        ]

    def toggled(self, bench: str, shown: list[str]) -> str:
        """With a bench more or less; without `bench` in the address those of the page count."""
        before = self.bench or shown
        after = [one for one in before if one != bench]
        after = [*before, bench][-MOST_COLUMNS:] if bench not in before else after
        return self.address(bench=after, column=None)

    def chosen(self, ref: str) -> tuple[str, str]:
        """Name and value of the button on a score: the first click picks it, the second one holds
        another against it.
        """
        return ("pick", ref) if self.pick is None else ("pair", f"{self.pick}~{ref}")

    @property
    def narrowed(self) -> bool:
        """Whether it shows less than all scores."""
        names = (*Conditions.model_fields, "column")
        return any(getattr(self, name) not in (None, False, []) for name in names)


@router.get("/leaderboard")
def show(request: Request, database: DatabaseDep) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it. Raises ConfigError."""
    view = _view(request.query_params)
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    found = leaderboard(database, view)
    shown = list(dict.fromkeys(column.bench for column in found.columns))
    pairs, problem = _pairs(database, view)
    context = {
        "title": "Leaderboard",
        "position": position,
        "view": view,
        "found": found,
        "shown": shown,
        "names": [*found.benches[:_NAMES_SHOWN], *(n for n in shown if n not in found.benches)],
        "more_names": max(0, len(found.benches) - _NAMES_SHOWN),
        "column": next((one for one in found.columns if one.measure == found.column), None),
        "pairs": pairs,
        "problem": problem,
        "words": scores,
        "kept": view.fields(**_ASKED_ANEW),
        "runners": _RUNNERS,
        "sorts": _SORTS,
        "exported": urlencode(view.fields(**_NO_PAGE)),
        "live": view.address(part="live"),
    }
    return page(request, "leaderboard.html", context)


_RUNNERS = {"": "anybody", "own": "own sampler", "harness": "lm-eval", "gate": "a run's gate"}
_SORTS = {name: name for name in get_args(Sort)}
_ASKED_ANEW: Mapping[str, None] = dict.fromkeys(
    ("base", "filter", "shots", "runner", "tag", "run", "best", "column", "sort", "limit")
)
"""What the form asks itself, or what another answer makes void."""
_NO_PAGE: Mapping[str, None] = dict.fromkeys(("column", "sort", "limit", "pair", "pick"))
"""What an export, which is all of it, is not asked."""


def _view(query: QueryParams) -> View:
    """A form sends what was left empty too. Raises ConfigError, or RequestValidationError."""
    given: dict[str, Any] = {
        name: value for name, value in query.items() if value.strip() and name != "part"
    }
    given |= {name: [v for v in query.getlist(name) if v.strip()] for name in _LISTS}
    require_plain(View, {n: value for n, value in given.items() if n not in _LISTS})
    try:
        return View.model_validate(given)
    except ValidationError as error:
        raise ConfigError(problems_of(error, View)) from None


def _pairs(database: Database, view: View) -> tuple[Pairs | None, str | None]:
    """Those that the address names, or what is wrong with them."""
    if not view.pair:
        return None, None
    try:
        return compare_pairs(database, view.pair), None
    except PairError as error:
        return None, str(error)
