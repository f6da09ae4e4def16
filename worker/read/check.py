"""The prospect (admission check before the queue): what a job would need, cost and meet.

The same forecast, envelope and governor that a drain asks about a queued job, asked about a config
that stands in no row yet. Reads only: nothing is queued, started or written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from pydantic import BaseModel
from sqlalchemy import Connection, RowMapping

from engine.contract.registry import get_kind
from worker.budget.ledger import SECONDS_PER_HOUR
from worker.db.connection import Database
from worker.queue.tried import Same, fingerprint, same_before
from worker.schedule import governor, policy
from worker.schedule.governor import Memory, Terms


class Prospect(NamedTuple):
    """What is known about a job that nobody has queued."""

    expected_s: float
    expected_by: str
    """same · kind · tried · guess: what the seconds are known from."""
    runs: int
    """Finished runs behind them."""
    cost_usd: float
    price_usd_h: float
    need_gb: float | None
    """None when the kind cannot tell."""
    need_by: str | None
    parts_gb: dict[str, float] | None
    """The kind's own estimate, before any correction."""
    memory: Memory
    reason: str | None
    """Why it would be put off if it were next now, in one word."""
    detail: str | None
    tried: Same | None
    """A job of the same kind, settings and data that has a result, waits or runs."""

    @property
    def room_gb(self) -> float | None:
        """What a job may take now, with what the resident model gives back."""
        if self.memory.free_gb is None:
            return None
        return max(0.0, self.memory.free_gb + (self.memory.returns_gb or 0) - self.memory.floor_gb)

    @property
    def fits(self) -> bool | None:
        """Whether it fits now; None where nobody can tell."""
        if self.need_gb is None or self.room_gb is None:
            return None
        return self.need_gb <= self.room_gb


class Prospects:
    """Of any number of jobs at one moment: what they are all judged by is read once."""

    def __init__(self, conn: Connection, terms: Terms, memory: Memory) -> None:
        """`conn` reads what is looked at; it must last as long as this does."""
        self._conn = conn
        self._terms = terms
        self._memory = memory
        self._look = governor.Look(conn, terms.settings.lane)

    def of(self, kind: str, config: BaseModel) -> Prospect:
        """Of a validated config."""
        same = fingerprint(get_kind(kind), config)
        candidate = _unqueued(kind, config, same.config)
        ruling = governor.judge(self._look, self._terms, candidate, lambda: self._memory)
        need, took = ruling.need, ruling.expected
        price = self._terms.settings.price_usd_h
        return Prospect(
            expected_s=took.seconds,
            expected_by=took.basis,
            runs=took.runs,
            cost_usd=took.seconds / SECONDS_PER_HOUR * price,
            price_usd_h=price,
            need_gb=need.gb if need else None,
            need_by=need.basis if need else None,
            parts_gb=need.estimate.parts() if need and need.estimate else None,
            memory=self._memory,
            reason=ruling.deferral.reason if ruling.deferral else None,
            detail=ruling.deferral.detail if ruling.deferral else None,
            tried=same_before(self._conn, same),
        )


@contextmanager
def prospects(db: Database, memory: Memory) -> Iterator[Prospects]:
    """As of now, with the memory that was found."""
    found = policy.standing(db)
    terms = Terms(db.settings, found if found and found.armed else None, time.time())
    with db.read() as conn:
        yield Prospects(conn, terms, memory)


def _unqueued(kind: str, config: BaseModel, config_hash: str) -> RowMapping:
    """The columns of a job's row that forecast, envelope and governor read; 0 is no job's id."""
    row: dict[str, Any] = {
        "id": 0,
        "kind": kind,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash,
        "result": {},
        "clone_of": None,
    }
    return cast("RowMapping", row)
