"""How a lane counts its time: the zone of its policy, and the days of its caps.

Without a policy the machine's zone, and plain local days.
"""

from __future__ import annotations

import zoneinfo

from sqlalchemy import Connection, bindparam, select

from worker.clock.window import CapDays, Window, zone_named
from worker.db.connection import Database
from worker.db.tables import policy

_HOURS = select(policy.c.zone, policy.c.window, policy.c.days).where(
    policy.c.lane == bindparam("of_lane")
)


def days_of(conn: Connection, lane: str) -> CapDays:
    """The days in which a lane's money and time are counted."""
    found = conn.execute(_HOURS, {"of_lane": lane}).one_or_none()
    if found is None:
        return CapDays(zone_named(None))
    return CapDays(zone_named(found.zone), Window.parse(found.window, found.days))


def zone_of(conn: Connection, lane: str) -> zoneinfo.ZoneInfo:
    """The zone of a lane."""
    return days_of(conn, lane).zone


def lane_zone(db: Database) -> zoneinfo.ZoneInfo:
    """The same for the lane of this place, in a transaction of its own."""
    with db.read() as conn:
        return zone_of(conn, db.settings.lane)
