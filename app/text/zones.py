"""The zone in which pages and commands tell times: the lane's, so that they agree with its window.

A box often runs in UTC while its operator set the hours of another zone; the same clock then shows
when the window opens, when a run started and what the night's report covers. Knows no page.
"""

from __future__ import annotations

import logging
import threading
import zoneinfo

from sqlalchemy.exc import SQLAlchemyError

from engine.contract.errors import NightlaneError
from worker.db.connection import Database
from worker.db.zone import lane_zone

_LOG = logging.getLogger(__name__)


class Zones:
    """Reads the lane's zone once for all that ask while nothing is written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._kept: zoneinfo.ZoneInfo | None = None
        self._stamp: int | None = None

    def now(self) -> zoneinfo.ZoneInfo | None:
        """The policy's zone, else the machine's; None while neither can be read."""
        with self._turn:
            try:
                # Before the reading: what is written meanwhile is read by the next page.
                stamp = self._database.stamp()
                if stamp is None or stamp != self._stamp:
                    self._kept = lane_zone(self._database)
                    self._stamp = stamp
            except (SQLAlchemyError, NightlaneError) as error:
                _LOG.warning("the lane's time zone cannot be read: %s", error)
            return self._kept
