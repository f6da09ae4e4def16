"""The runs for every page that asks while nothing is written: read once. Knows no page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from markupsafe import Markup

from worker.db.connection import Database
from worker.read.runs.table import Asked, Reading, Table, read, series_in, table_of

_KEPT = 4
"""Readings: with and without what was archived, with other series."""


_KEPT_DRAWN = 16


class RunTables:
    """Reads the runs anew where the database does not say that nothing was written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._stamp: int | None = None
        self._kept: dict[tuple[bool, tuple[str, ...]], Reading] = {}
        self._drawn: dict[Hashable, Markup] = {}

    def reading(self, *, archived: bool = False, series: tuple[str, ...] = ()) -> Reading:
        """All runs as they are now."""
        with self._turn:
            stamp = (
                self._database.stamp()
            )  # before the reading: what is written meanwhile is read next
            if stamp is None or stamp != self._stamp or len(self._kept) >= _KEPT:
                self._kept.clear()
                self._drawn.clear()
                self._stamp = stamp
            key = (archived, series)
            if key not in self._kept:
                self._kept[key] = read(self._database, archived=archived, series=series)
            return self._kept[key]

    def kept(self, key: Hashable, draw: Callable[[], Markup]) -> Markup:
        """What was drawn from the reading of now under this key, or is drawn now."""
        with self._turn:
            drawn, stamp = self._drawn.get(key), self._stamp
        if drawn is None:
            drawn = draw()
            with self._turn:
                if stamp == self._stamp and len(self._drawn) < _KEPT_DRAWN:
                    self._drawn[key] = drawn
        return drawn

    def table(self, asked: Asked) -> Table:
        """Raises ConfigError for a filter that cannot be read, and for an unknown column."""
        return table_of(self.reading(archived=asked.archived, series=series_in(asked)), asked)
