"""Pages that a browser makes before the click: which ones, and that making one changes nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from starlette.testclient import TestClient

from app.web.navigation import NAVIGATION
from tests.app.night import queue
from worker.db.connection import Database
from worker.read.feed import last_change_id

AHEAD = {"sec-purpose": "prefetch;prerender", "accept": "text/html"}


def rules_of(page: str) -> str:
    """The text that a page's script makes its rules from, as it stands there."""
    found = re.search(r'<script type="application/json" id="ahead">(.*?)</script>', page, re.DOTALL)
    assert found
    return found[1]


def test_every_whole_page_brings_the_rules_and_a_part_does_not(client: TestClient) -> None:
    """The policy knows them by their hash: no other text is taken for rules."""
    (rules,) = {rules_of(client.get(place.address).text) for place in NAVIGATION}
    digest = base64.b64encode(hashlib.sha256(rules.encode()).digest()).decode()

    policy = client.get("/").headers["content-security-policy"]

    assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert 'id="ahead"' not in client.get("/?part=live").text


def test_only_run_pages_and_the_pages_of_the_navigation_are_made_ahead(client: TestClient) -> None:
    """No download, no table, no series: one page for one rest of the pointer."""
    (rule,) = json.loads(rules_of(client.get("/").text))["prerender"]
    assert rule["eagerness"] == "moderate"
    assert rule["where"]["or"] == [
        {"href_matches": r"/jobs/:id(\d+)"},
        {"selector_matches": "header.top a"},
    ]


@pytest.mark.requirement("UI-11")
def test_a_page_that_is_made_ahead_changes_nothing(client: TestClient, db: Database) -> None:
    """Nobody has decided anything by resting a pointer, and no place at the stream is taken."""
    job_id = queue(db)
    before = last_change_id(db)

    for address in [f"/jobs/{job_id}", *(place.address for place in NAVIGATION)]:
        assert client.get(address, headers=AHEAD).status_code == 200

    assert last_change_id(db) == before
    assert client.get("/healthz").json()["viewers"] == 0
    assert client.get("/jobs/999", headers=AHEAD).status_code == 404
