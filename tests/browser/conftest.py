"""Chromium against a real `cockpit serve` over a real SQLite file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from app.pages.rescored import ask_of_page
from tests.deadline import eventually
from tests.door import address
from tests.filled import Filled, filled
from worker.db.connection import Database, open_database
from worker.read import jobs, rescoring
from worker.settings import WorkerSettings

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's browser, once a module."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield browser
        browser.close()


class Server:
    """`cockpit serve` as a process that can die and come back on its port."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.port = 0
        self._environment = os.environ | {
            "NIGHTLANE_DATA_DIR": str(settings.data_dir),
            "NIGHTLANE_LOCK_DIR": str(settings.lock_dir),
            "NIGHTLANE_LANE": settings.lane,
            "NIGHTLANE_LEASE_S": str(settings.lease_s),
            "NIGHTLANE_PRICE_USD_H": str(settings.price_usd_h),
        }
        self.child: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", str(self.port)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        eventually(self._answers, "the server answers", within_s=20)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        if self.child:
            self.child.kill()
            self.child.communicate()
            self.child = None


class House:
    """A database, and a server over it."""

    def __init__(self, folder: Path, lease_s: float = 15, price_usd_h: float = 0) -> None:
        settings = WorkerSettings(
            data_dir=folder / "data",
            lock_dir=folder / "locks",
            lane="test",
            lease_s=lease_s,
            price_usd_h=price_usd_h,
        )
        self.db = open_database(settings)
        self.server = Server(settings)

    def enter(self, context: BrowserContext) -> None:
        """Sign a browser in: it opens a one-time address, and keeps the cookie."""
        assert context.request.get(address(self.db, self.server.url)).ok

    def close(self) -> None:
        self.server.kill()
        self.db.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for the tests that look at jobs of their own; a server takes seconds to start."""
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


@dataclass(frozen=True)
class FilledHouse:
    """A house as a busy week leaves it; its running job is never stale."""

    house: House
    filled: Filled


def _judge_again(db: Database, job_id: int) -> None:
    """What its page shows of it: kept, so that no page waits."""
    job = jobs.get_job(db, job_id)
    ask = ask_of_page(job, "report", 40, ["exact", "gsm8k_last_number"])
    rescoring.look(ask, job.run_dir, patience_s=60)


@pytest.fixture(scope="module")
def filled_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledHouse]:
    """For tests that look and change nothing."""
    made = House(tmp_path_factory.mktemp("filled"), lease_s=3600, price_usd_h=1.8)
    with filled(made.db) as content:
        _judge_again(made.db, content.ids["gain"])
        yield FilledHouse(made, content)
    made.close()


@pytest.fixture
def new_house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Build one that nobody used before."""
    built: list[House] = []

    def build(**options: Any) -> House:
        built.append(House(tmp_path, **options))
        return built[-1]

    yield build
    for made in built:
        made.close()


class Visit:
    """One page, with all that it complained about and all that it asked for."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[Any] = []
        self._server = server
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        self.requests.append(request)

    def _heard(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def open(self, path: str) -> Page:
        """Go there and wait until the page is live; mark it, so that a reload would show."""
        self.page.goto(self._server.url + path)
        self.page.wait_for_selector("#connection[data-state=live]")
        self.page.evaluate("window.sameVisit = true")
        return self.page

    def never_reloaded(self) -> bool:
        return bool(self.page.evaluate("window.sameVisit === true"))


def set_hidden(page: Page, *, hidden: bool) -> None:
    """As if another tab was chosen, or this one again."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
          document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Open browser contexts; options are Playwright's (`color_scheme`, `viewport`)."""
    contexts: list[BrowserContext] = []

    def new(house: House, **options: Any) -> Visit:
        contexts.append(chromium.new_context(**options))
        house.enter(contexts[-1])
        return Visit(contexts[-1], house.server)

    yield new
    for context in contexts:
        context.close()
