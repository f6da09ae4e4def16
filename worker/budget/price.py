"""The price of a lane's hour (rate card): set once, kept in the database, else the setting's.

A drain takes the price that stands when it begins and keeps it; rows that are in the ledger keep
the price they were written at. Knows no job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import delete, insert, select

from engine.contract.errors import ConfigError
from engine.contract.problems import problems_of
from worker.amounts import Amount, dollars
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import lane_price

PRICED = "priced"


class Price(BaseModel):
    """What one hour of the lane costs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    usd_h: Amount = Field(ge=0, le=10_000)


def set_price(db: Database, raw: Mapping[str, Any], *, actor: str, now: float) -> Price:
    """Write the lane's price; it counts from the next drain on. Raises ConfigError."""
    try:
        price = Price.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, Price)) from error
    lane, before = db.settings.lane, db.settings.price_usd_h
    with db.write_tx() as conn:
        conn.execute(delete(lane_price).where(lane_price.c.lane == lane))
        row = {"lane": lane, "usd_h": price.usd_h, "changed_at": now, "changed_by": actor}
        conn.execute(insert(lane_price).values(row))
        decisions.record(
            conn,
            lane,
            PRICED,
            f"an hour of the lane costs {dollars(price.usd_h)} from the next drain on",
            actor=actor,
            numbers={"before_usd": before, "price_usd": price.usd_h},
            at=now,
        )
    take_price(db)
    return price


def take_price(db: Database) -> None:
    """Go by the price that stands in the database, where one was set."""
    statement = select(lane_price.c.usd_h).where(lane_price.c.lane == db.settings.lane)
    with db.read() as conn:
        usd_h = conn.execute(statement).scalar_one_or_none()
    if usd_h is not None and usd_h != db.settings.price_usd_h:
        db.settings = db.settings.model_copy(update={"price_usd_h": usd_h})
