"""A page that Chromium makes while the pointer rests on its link, before the click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.web.live import BEAT_S
from tests.app.night import night, queue
from tests.browser.conftest import ARGUMENTS, House
from tests.browser.piped import piped

pytestmark = pytest.mark.browser

LIVE = "document.querySelector('#connection')?.dataset.state === 'live'"
MADE = "document.prerendering && performance.getEntriesByName('charts-drawn').length"
STEP = "document.querySelector('progress')?.value"


@pytest.mark.requirement("UI-11")
def test_a_run_page_is_drawn_before_the_click_and_live_after_it(
    house: House, tmp_path: Path
) -> None:
    """Unseen it follows nothing; seen it shows what was missed, and goes on as any page does."""
    with night(house.db) as lane, piped(tmp_path, ARGUMENTS) as tab:
        job_id = queue(house.db, name="looked at")
        running = lane.start()
        running.gate(0, 0.5)
        running.step(1, 0.5)
        tab.go(house.server.url)
        tab.until(LIVE)

        place = tab.point(f"a[href='/jobs/{job_id}']")
        tab.until(MADE, ahead=True)
        running.step(7, 0.5)
        tab.until(f"{STEP} === 7")  # the board has heard of it

        assert tab.value(STEP, ahead=True) == 1
        assert tab.value(LIVE, ahead=True) is False

        tab.press(*place)
        tab.until(f"location.pathname === '/jobs/{job_id}' && {LIVE} && {STEP} === 7")
        activated = "performance.getEntriesByType('navigation')[0].activationStart"
        drawn = "performance.getEntriesByName('charts-drawn').map(mark => mark.startTime)"
        (at,) = tab.value(drawn)
        assert 0 < at < tab.value(activated)

        running.step(9, 0.5)
        tab.until(f"{STEP} === 9")
        running.finish()


def test_what_is_queued_after_a_page_was_made_ahead_is_in_its_strip_when_it_is_seen(
    new_house: Callable[..., House], tmp_path: Path
) -> None:
    """Also on the help, where nothing else is live; the strip does not wait for the next beat."""
    house = new_house()
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/strip'))"
    with piped(tmp_path / "profile", ARGUMENTS) as tab:
        tab.go(house.server.url)
        tab.until(LIVE)
        place = tab.point("header.top a[href='/help']")
        tab.until("document.prerendering && document.readyState === 'complete'", ahead=True)
        queue(house.db)
        assert tab.value(f"{asked}.length", ahead=True) == 0

        tab.press(*place)
        tab.until("location.pathname === '/help' && !document.prerendering")
        tab.until("document.getElementById('strip').textContent.includes('1 waiting')")
        activated = "performance.getEntriesByType('navigation')[0].activationStart"
        assert tab.value(f"{asked}[0].startTime - {activated}") < BEAT_S * 1000 / 2
