"""The time zone in which a lane counts its days: its policy's, else the machine's."""

from __future__ import annotations

import zoneinfo

from sqlalchemy import Connection, bindparam, select

from worker.clock.window import zone_named
from worker.db.connection import Database
from worker.db.tables import policy

ZONE = select(policy.c.zone).where(policy.c.lane == bindparam("of_lane"))
"""The zone's name as the policy has it; no row where no policy was ever set."""


def zone_of(conn: Connection, lane: str) -> zoneinfo.ZoneInfo:
    """The zone of a lane."""
    return zone_named(conn.execute(ZONE, {"of_lane": lane}).scalar_one_or_none())


def lane_zone(db: Database) -> zoneinfo.ZoneInfo:
    """The same for the lane of this place, in a transaction of its own."""
    with db.read() as conn:
        return zone_of(conn, db.settings.lane)
