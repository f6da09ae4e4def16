"""Arming with the crontab box in a browser, over a crontab of this test alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import House, Visit
from tests.worker.schedule.test_cron import CRONTAB, OTHERS
from worker.schedule import policy

pytestmark = pytest.mark.browser


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's crontab with somebody else's lines, for servers that start after this."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = folder / "table"
    found.write_text(OTHERS)
    program = folder / "crontab"
    program.write_text(CRONTAB.format(python=sys.executable, table=str(found)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return found


def arm(page: Page, *, interval: str) -> None:
    """Fill the form in, the box ticked, and send it."""
    if page.locator("#every").get_attribute("open") is None:
        page.get_by_text("Every night…").click()
    page.get_by_label("interval min").fill(interval)
    page.get_by_label("window", exact=True).fill("")
    page.get_by_label("cap usd").fill("5")
    page.get_by_label("crontab").check()
    page.get_by_role("button", name="Arm every night").click()


@pytest.mark.requirement("UI-04")
@pytest.mark.requirement("LN-01")
def test_the_box_puts_a_line_into_the_crontab_and_disarming_takes_it_out(
    visit: Callable[..., Visit], new_house: Callable[..., House], table: Path
) -> None:
    """Refused at its field where it cannot be; else one line, its next start told, others kept."""
    house = new_house()
    seen = visit(house)
    page = seen.open("/queue")

    arm(page, interval="45")
    expect(page.get_by_role("alert")).to_contain_text("interval min: cannot be said in a crontab")
    expect(page.get_by_label("crontab")).to_be_checked()
    (table.parent / "refuses").touch()
    arm(page, interval="30")
    expect(page.locator("#every-install_cron-help .problem")).to_contain_text("Permission denied")
    assert policy.standing(house.db) is None
    assert table.read_text() == OTHERS

    (table.parent / "refuses").unlink()
    arm(page, interval="30")
    stand = page.locator(".figures", has_text="crontab").first
    expect(stand).to_contain_text("next")
    [line] = table.read_text().removeprefix(OTHERS).splitlines()
    assert line.startswith("*/30 * * * * ")
    assert str(house.db.settings.data_dir) in line

    page.get_by_role("button", name="Disarm now").click()
    expect(page.get_by_role("heading", name="Not armed")).to_have_count(1)
    assert table.read_text() == OTHERS
