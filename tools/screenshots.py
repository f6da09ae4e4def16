"""Pictures of every page, light and dark, wide and phone, empty and full, to be looked at.

Serves an empty data directory and one that `tests.filled` filled, and writes
.nightlane/screenshots/NAME-SCHEME-WIDTH-FILL.png. Judges nothing: the browser tests do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.browser.conftest import ARGUMENTS, Server
from tests.browser.places import PLACES
from tests.door import address
from tests.filled import Filled, filled
from worker.db.connection import open_database
from worker.settings import WorkerSettings

OUT = Path(".nightlane/screenshots")
SCHEMES = ("light", "dark")
WIDTHS = {"wide": 1280, "phone": 390}


def main() -> int:
    """Take the pictures; name pages to take only those."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(p.name for p in PLACES)}")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help="light and wide, full")
    wanted = parser.parse_args()
    unknown = set(wanted.pages) - {place.name for place in PLACES}
    if unknown:
        parser.error(f"no page is called {', '.join(sorted(unknown))}")
    places = [place for place in PLACES if not wanted.pages or place.name in wanted.pages]
    wanted.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for fill in ("full",) if wanted.quick else ("full", "empty"):
            with _served(Path(folder) / fill, full=fill == "full") as (url, made, settings):
                shown = [place for place in places if made or place.empty]
                addresses = {place.name: url + place.at(made) for place in shown}
                for scheme in SCHEMES[:1] if wanted.quick else SCHEMES:
                    for width in ("wide",) if wanted.quick else WIDTHS:
                        with _screen(browser, scheme, width) as screen:
                            _sign_in(screen, settings, url)
                            _take(screen, addresses, wanted.out, f"{scheme}-{width}-{fill}")
        browser.close()
    print(f"{len(list(wanted.out.glob('*.png')))} pictures in {wanted.out}")
    return 0


@contextmanager
def _served(folder: Path, *, full: bool) -> Iterator[tuple[str, Filled | None, WorkerSettings]]:
    """A cockpit over a directory of its own; the running job of a full one is never stale."""
    settings = WorkerSettings(
        data_dir=folder / "data",
        lock_dir=folder / "locks",
        lane="test",
        lease_s=3600,
        price_usd_h=1.8,
    )
    with ExitStack() as stack:
        made = (
            stack.enter_context(filled(stack.enter_context(open_database(settings))))
            if full
            else None
        )
        server = Server(settings)
        stack.callback(server.kill)
        yield server.url, made, settings


@contextmanager
def _screen(browser: Browser, scheme: str, width: str) -> Iterator[BrowserContext]:
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": WIDTHS[width], "height": 844},
        reduced_motion="reduce",
    )
    yield context
    context.close()


def _sign_in(screen: BrowserContext, settings: WorkerSettings, url: str) -> None:
    with open_database(settings) as db:
        assert screen.request.get(address(db, url)).ok


def _take(screen: BrowserContext, addresses: Mapping[str, str], out: Path, look: str) -> None:
    """One picture of each address, as long as the page is."""
    for name, at in addresses.items():
        page = screen.new_page()
        page.goto(at)
        page.wait_for_selector("#connection[data-state=live]")
        page.evaluate("document.fonts.ready")
        page.screenshot(path=out / f"{name}-{look}.png", full_page=True)
        page.close()


if __name__ == "__main__":
    sys.exit(main())
