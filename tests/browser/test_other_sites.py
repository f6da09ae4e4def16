"""A page of another site, in the browser that has the cockpit open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import House

pytestmark = pytest.mark.browser

_OPEN = "address => { window.opened = window.open(address); }"
_LEAD_AWAY = """address => {
  try { opened.location = address; } catch { /* as it should be */ }
}"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another name, hence another site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("way", ["opened by it", "typed into its window"])
def test_another_site_cannot_lead_the_cockpits_window_away(
    way: str, elsewhere: str, chromium: Browser, house: House
) -> None:
    """The page that opened a window may otherwise put a page of its own in the place of ours."""
    context = chromium.new_context()
    house.enter(context)
    theirs = context.new_page()
    theirs.goto(elsewhere)
    with context.expect_page() as opened:
        theirs.evaluate(_OPEN, house.server.url if way == "opened by it" else f"{elsewhere}empty")
    ours = opened.value
    if way != "opened by it":
        ours.goto(house.server.url)
    expect(ours.locator("#connection")).to_have_attribute("data-state", "live")

    theirs.evaluate(_LEAD_AWAY, f"{elsewhere}stolen")
    ours.locator("header.top a[href='/machine']").click()

    expect(ours).to_have_url(f"{house.server.url}/machine")
    assert ours.evaluate("window.opener") is None
    context.close()
