"""What a run found out about itself, on its page."""

from __future__ import annotations

import math
import time

import pytest
from starlette.testclient import TestClient

from engine.contract.trace import TraceWriter
from tests.app.night import night, queue
from tests.app.pages.test_pages import words
from worker.db.connection import Database
from worker.report.snapshot import latest_morning

ALERT = {"code": "INVERSION", "step": 20, "text": "the pool rose <b>while</b> held-out fell"}


@pytest.mark.requirement("RL-06")
def test_an_alert_stands_on_the_page_while_the_run_goes_on(
    client: TestClient, db: Database
) -> None:
    """Whoever looks sees it before the run has ended; it is text, whatever it holds."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("progress", alerts=[ALERT])
        attempt.step(20, 0.9)

        page = client.get(f"/jobs/{job_id}").text

    assert "step 20: the pool rose &lt;b&gt;while&lt;/b&gt; held-out fell" in page
    assert "<b>while</b>" not in page


@pytest.mark.requirement("EX-25")
def test_a_warning_shows_its_completions_on_the_run_page_and_in_the_report(
    client: TestClient, db: Database
) -> None:
    """In the report's page as in its file; another run that said nothing is not named there."""
    sample = {"prompt": "1+1=", "completion": "2 <b>so long</b>", "reward": 1.0, "reason": "x"}
    warned = {"code": "TRUNCATED", "step": 20, "text": "9% are cut off; raise", "samples": [sample]}
    loud, quiet = queue(db, name="loud"), queue(db, name="quiet")
    with night(db) as lane:
        lane.start().finish(alerts=[warned])
        lane.start().finish()

        run, silent = (client.get(f"/jobs/{number}").text for number in (loud, quiet))
        morning = f"/report?date={latest_morning(db, time.time())}"
        report, file = (client.get(f"{morning}{more}").text for more in ("", "&download=true"))

    for page in (run, report, file):
        assert "TRUNCATED step 20: 9% are cut off; raise" in words(page)
        assert "1 completion that shows it 1+1= 2 <b>so long</b> reward 1.0" in words(page)
        assert "<b>so long</b>" not in page
    assert 'class="alert"' not in silent
    section = report[report.index('id="warned-h"') : report.index('id="next-h"')]
    assert "loud" in section
    assert "quiet #" not in words(section)


def test_events_that_nobody_could_read_are_told_once(client: TestClient, db: Database) -> None:
    """Whoever looks at the run learns that something is missing from it."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("gate", step=1, split="select", score=0.5, ci95=0.05)
        attempt.write("progress", step="one")
        attempt.step(20, 0.9)

        text = words(client.get(f"/jobs/{job_id}").text)

    assert text.count("EVENTS_LEFT_OUT 2 events of this run were left out") == 1
    assert "the first: event 2 (gate): ci95 is 0.05" in text


def test_values_that_no_chart_shows_are_told(client: TestClient, db: Database) -> None:
    """A loss that became NaN is not a line that just ends."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("metric", step=1, values={"train/loss": 0.5, "train/kl": 0.1})
        attempt.write("metric", step=2, values={"train/loss": math.nan, "train/kl": math.inf})
        attempt.write("metric", step=3, values={"train/loss": 1.7e308, "train/kl": 0.2})
        attempt.write("metric", step=2**31, values={"train/loss": 0.5})

        text = words(client.get(f"/jobs/{job_id}").text)

    assert "VALUES_LEFT_OUT 4 values of this run are in no chart" in text
    assert "the first: train/loss at step 2 is no number (NaN, infinite or of another type)" in text


def test_a_verdict_comes_with_what_it_means_and_what_was_published(
    client: TestClient, db: Database
) -> None:
    """`pool only` ships the base, and says so."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("finished", status="done", result={"published_step": 0})
        attempt.finish(verdict="pool only")
        text = words(client.get(f"/jobs/{job_id}").text)

    assert "Training rollouts improved, held-out rows did not: the base is published." in text


def test_a_gain_whose_interval_includes_none_says_why(client: TestClient, db: Database) -> None:
    """The test is of all held-out rows, the interval of the report rows."""
    job_id = queue(db)
    with night(db) as lane:
        lane.start().finish(before=0.55, after=0.58)
        text = words(client.get(f"/jobs/{job_id}").text)

    assert "(−1.0 to +7.0, n 500)." in text
    assert "its size is that on the report rows alone, whose interval includes 0" in text


@pytest.mark.requirement("EX-16")
def test_the_page_sums_a_trace_up_and_gives_it_out(client: TestClient, db: Database) -> None:
    """Where the time went, and the file as Perfetto reads it."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        assert client.get(f"/jobs/{job_id}/trace.json").status_code == 404
        trace = TraceWriter(attempt.run.trace, 1)
        trace.span("sampling", 10, 100, step=1)
        trace.span("training", 100, 130, step=1)
        trace.close()

        text = words(client.get(f"/jobs/{job_id}").text)
        given = client.get(f"/jobs/{job_id}/trace.json")

    assert "span took times sampling 1 min 30 s 1 training 30 s 1" in text
    assert [event["name"] for event in given.json()][1:] == ["sampling", "training"]


@pytest.mark.parametrize(
    "result",
    [
        {"alerts": "no list", "diagnosis": [], "published_step": "x", "seconds_per_point": None},
        {"alerts": [3, {"code": 1}, {"text": 5}], "diagnosis": {"samples": [1, {}]}},
    ],
)
def test_a_result_of_another_version_reads_as_nothing_found(
    result: dict[str, object], client: TestClient, db: Database
) -> None:
    """The page stands whatever an engine wrote."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("finished", status="done", result=result)
        attempt.finish()

        assert client.get(f"/jobs/{job_id}").status_code == 200
