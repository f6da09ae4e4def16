"""The first line of a run: verdict, difference, interval, n, and what follows from it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.night import night, queue
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.queue.states import State

Cockpit = Callable[..., Any]


def first_line(client: TestClient, number: int) -> str:
    """The page's first heading as it is read."""
    found = re.search(r"<h1[^>]*>(.*?)</h1>", client.get(f"/jobs/{number}").text, re.DOTALL)
    assert found
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", found[1])).split())


@pytest.mark.parametrize(
    ("after", "verdict", "sentence"),
    [
        (
            0.81,
            "gain",
            "▲Gain: step 30 solves 25.8 points more held-out rows than qwen3-tiny, "
            "55.2 → 81.0 % (+21.8 to +29.8, n 500).",
        ),
        (
            0.452,
            "loss",
            "▼Loss: step 30 solves 10.0 points fewer held-out rows than qwen3-tiny, "
            "55.2 → 45.2 % (−14.0 to −6.0, n 500).",
        ),
        (
            0.562,
            "no gain proven",
            "○No gain proven: step 30 against qwen3-tiny +1.0 points on held-out rows, "
            "55.2 → 56.2 % (−3.0 to +5.0, n 500).",
        ),
    ],
)
def test_the_first_line_is_the_verdict_with_its_difference_interval_and_n(
    client: TestClient, cockpit: Cockpit, db: Database, after: float, verdict: str, sentence: str
) -> None:
    """Word for word the same in `show` and over REST; what follows stands behind it."""
    number = queue(db)
    with night(db) as lane:
        lane.start().finish(after=after, verdict=verdict)

    rest = client.get(f"/api/v1/jobs/{number}").json()["outcome"]
    said = cockpit("show", str(number)).out.splitlines()

    assert first_line(client, number) == sentence
    assert rest["word"] == verdict
    assert f"{sentence[0]} {rest['sentence']}" == f"{sentence[0]} {sentence[1:]}" == said[0]
    assert rest["then"] == said[1]
    assert rest["then"].endswith(".")
    assert json.loads(cockpit("show", str(number), "--json").out)["outcome"] == rest


def test_a_run_without_a_verdict_says_its_state_and_why(client: TestClient, db: Database) -> None:
    """Before its end there is no verdict; a failure says what happened."""
    number = queue(db)
    assert first_line(client, number).startswith("◌Queued: ")
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(3, 0.5)
        assert first_line(client, number) == "●Running: step 3 of 40."
        attempt.gate(3, 0.6)
        assert first_line(client, number).endswith("held-out so far 60.0 %.")
        attempt.settle(Verdict(State.FAILED, "x", "CRASH", "the disk was full; 3.2 GB were free"))

    assert first_line(client, number) == "✕Failed: the disk was full; 3.2 GB were free."


def test_a_run_that_judged_nothing_says_why(client: TestClient, db: Database) -> None:
    """No number is made up where none was measured."""
    number = queue(db)
    with night(db) as lane:
        lane.start().finish(
            verdict="no verdict", lift=None, lift_ci95=None, verdict_reason="4 rows were judged"
        )

    assert first_line(client, number) == "–No verdict: 4 rows were judged."
