"""The prospect (admission check before the queue): what a job would need, cost and meet.

The same forecast, envelope and governor that a drain asks about a queued job, asked about a config
that stands in no row yet. Reads only: nothing is queued, started or written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pydantic import BaseModel
from sqlalchemy import Connection, RowMapping

from engine.contract.kinds import get_kind
from worker.database import Database
from worker.jobs.tried import Fingerprint, fingerprint, finished_before
from worker.lane import governor, policy
from worker.lane.governor import Memory, Terms
from worker.lane.ledger import SECONDS_PER_HOUR


class Tried(NamedTuple):
    """A finished result of the same kind, settings and data."""

    job_id: int
    verdict: str | None


class Prospect(NamedTuple):
    """What is known about a job that nobody has queued."""

    expected_s: float
    expected_by: str
    """same · kind · guess: what the seconds are known from."""
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
    tried: Tried | None

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


def prospect(
    db: Database,
    kind: str,
    config: BaseModel,
    memory: Callable[[], Memory],
    *,
    now: float | None = None,
) -> Prospect:
    """Of a validated config. `memory` is read once."""
    now = time.time() if now is None else now
    same = fingerprint(get_kind(kind), config)
    found = policy.standing(db)
    room = memory()
    with db.read() as conn:
        ruling = governor.judge(
            governor.Look(conn, db.settings.lane),
            Terms(db.settings, found if found and found.armed else None, now),
            _unqueued(kind, config, same.config),
            lambda: room,
        )
        tried = _tried(conn, same)
    need, took = ruling.need, ruling.expected
    price = db.settings.price_usd_h
    return Prospect(
        expected_s=took.seconds,
        expected_by=took.basis,
        runs=took.runs,
        cost_usd=took.seconds / SECONDS_PER_HOUR * price,
        price_usd_h=price,
        need_gb=need.gb if need else None,
        need_by=need.basis if need else None,
        parts_gb=need.estimate.parts() if need and need.estimate else None,
        memory=room,
        reason=ruling.deferral.reason if ruling.deferral else None,
        detail=ruling.deferral.detail if ruling.deferral else None,
        tried=tried,
    )


def _unqueued(kind: str, config: BaseModel, config_hash: str) -> RowMapping:
    """The columns of a job's row that forecast, envelope and governor read; 0 is no job's id."""
    row: dict[str, Any] = {
        "id": 0,
        "kind": kind,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash,
        "result": {},
    }
    return cast("RowMapping", row)


def _tried(conn: Connection, same: Fingerprint) -> Tried | None:
    before = finished_before(conn, same)
    return None if before is None else Tried(*before)
