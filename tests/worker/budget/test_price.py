"""The price of the lane's hour: what a drain charges by."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from worker.budget.price import set_price, take_price
from worker.db.connection import Database
from worker.drain import drain
from worker.read.spending import entries
from worker.settings import WorkerSettings


def test_a_drain_charges_by_the_price_that_was_set_and_not_by_its_environment(
    settings: WorkerSettings, db: Database, tally: Callable[..., int]
) -> None:
    """Reserved and settled alike, at the price of the row."""
    set_price(db, {"usd_h": 36.0}, actor="test", now=time.time())
    tally()

    drain(settings)

    rows = entries(db)
    assert {row.entry for row in rows} >= {"reserve", "settle"}
    assert {row.price_usd_h for row in rows} == {36.0}
    assert all(row.usd == pytest.approx(row.seconds / 100) for row in rows)


def test_without_a_price_of_its_own_the_setting_counts(db: Database) -> None:
    """A fresh database changes nothing."""
    db.settings = db.settings.model_copy(update={"price_usd_h": 1.5})

    take_price(db)

    assert db.settings.price_usd_h == 1.5
