"""Energy: read where the kernel has a counter, carried into ledger and report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.lane_rows import BERLIN, NOON
from worker.budget import ledger
from worker.budget.energy import EnergyCounter
from worker.budget.ledger import Meter
from worker.clock.window import CapDays
from worker.db.connection import Database
from worker.schedule.policy import Standing


def package(powercap: Path, name: str, microjoules: int, most: int = 1_000_000) -> None:
    """A counter as the kernel shows it."""
    folder = powercap / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")


def test_packages_are_added_up_and_their_parts_left_out(tmp_path: Path) -> None:
    """Two sockets; the cores of the first are counted in it already."""
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        package(tmp_path, name, 100_000)
    counter = EnergyCounter(powercap=tmp_path)

    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        package(tmp_path, name, 600_000)

    assert counter.joules() == pytest.approx(1.0)


def test_a_counter_that_begins_again_loses_nothing(tmp_path: Path) -> None:
    """From 900,000 over the range of 1,000,000 to 100,000 are 0.2 J."""
    package(tmp_path, "intel-rapl:0", 900_000)
    counter = EnergyCounter(powercap=tmp_path)

    package(tmp_path, "intel-rapl:0", 100_000)

    assert counter.joules() == pytest.approx(0.2)


def test_where_nothing_can_be_read_there_is_no_number(tmp_path: Path) -> None:
    """No counter, or one that only root may read: not zero, but nothing."""
    (tmp_path / "intel-rapl:0").mkdir()

    assert EnergyCounter(powercap=tmp_path).joules() is None
    assert EnergyCounter(powercap=tmp_path / "nowhere").joules() is None
    assert EnergyCounter(device=99, powercap=tmp_path).joules() is None


def test_energy_is_charged_with_the_seconds_it_was_used_in(
    db: Database, armed: Callable[..., Standing], tally: Callable[..., int]
) -> None:
    """A piece over midnight is cut like its time."""
    armed()
    meter = Meter("cpu", tally(), 1, 0.0, CapDays(BERLIN), "test")
    midnight = NOON + 12 * 3600

    with db.write_tx() as conn:
        ledger.use(conn, meter, begin=midnight - 30, seconds=40, at=midnight + 10, joules=80.0)

    days = [ledger.day_view(db, None, moment) for moment in (midnight - 1, midnight + 1)]
    assert [row.joules for day in days for row in day.rows] == [60.0, 20.0]
