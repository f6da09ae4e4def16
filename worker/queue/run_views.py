"""Views of the table of runs that people saved under a name: the query string of an address."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import delete, func, insert, select

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from engine.contract.problems import problems_of, text_problems
from worker.db.connection import Database
from worker.db.tables import run_view
from worker.queue.submission import checked_name

MOST_VIEWS = 40


class NoSuchViewError(NightlaneError):
    """No view has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no view is called {name[:60]!r}; GET /api/v1/runs/views lists them")


class SavedView(BaseModel):
    """One of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(max_length=40)
    """What it is called; a name that is taken is taken over."""
    query: str = Field(default="", max_length=2_000)
    """What stands behind `/runs?`, such as `q=tag:night&sort=-gain`."""

    _plain_name = field_validator("name")(checked_name)


def saved_views(db: Database) -> list[SavedView]:
    """All, by name."""
    with db.read() as conn:
        rows = conn.execute(select(run_view).order_by(run_view.c.name))
        return [SavedView(name=row.name, query=row.query) for row in rows]


def save_view(db: Database, raw: dict[str, Any], *, actor: str) -> SavedView:
    """Keep a view under its name. Raises ConfigError."""
    if unwritable := text_problems(raw):
        raise ConfigError(unwritable)
    try:
        view = SavedView.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(problems_of(error, SavedView)) from error
    row = {**view.model_dump(), "created_at": time.time(), "created_by": actor}
    with db.write_tx() as conn:
        conn.execute(delete(run_view).where(run_view.c.name == view.name))
        if conn.execute(select(func.count()).select_from(run_view)).scalar_one() >= MOST_VIEWS:
            problem, remedy = (
                f"would be one more than {MOST_VIEWS} views",
                "delete another one first",
            )
            raise ConfigError([ConfigProblem("name", view.name, problem, remedy)])
        conn.execute(insert(run_view).values(row))
    return view


def drop_view(db: Database, name: str) -> None:
    """Raises NoSuchViewError."""
    with db.write_tx() as conn:
        if not conn.execute(delete(run_view).where(run_view.c.name == name)).rowcount:
            raise NoSuchViewError(name)
