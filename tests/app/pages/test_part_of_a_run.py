"""The part of a run that its charts show: two fields of a form, as good without a pointer."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tests.app.night import night, queue
from worker.db.connection import Database


@pytest.fixture
def job_id(db: Database) -> int:
    """A finished run of thirty steps."""
    made = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in range(1, 31):
            values = {"pool/score": step / 30, "train/kl": 0.1 * step}
            attempt.add("metric", step=step, values=values)
        attempt.write("progress", phase="training", step=30, max_steps=30)
        attempt.finish()
    return made


def drawn(client: TestClient, job_id: int, page: str, query: str) -> list[float]:
    """Where the points of the KL chart stand; its table in the page ends where they do."""
    asked = client.get(f"/jobs/{job_id}/charts/kl.json?points=500&{query}").json()
    places: list[float] = asked["x"]
    table = page.partition('id="chart-kl"')[2].partition("</noscript>")[0]
    steps = [int(step) for step in re.findall(r'<th scope="row"[^>]*>(\d+)<', table)]
    assert steps[-1] == places[-1]
    assert places[0] <= steps[0] <= places[0] + 1
    return places


@pytest.mark.requirement("UI-02")
def test_a_part_of_a_run_is_asked_for_by_two_fields_of_a_plain_form(
    client: TestClient, job_id: int
) -> None:
    """No pointer and no script is needed; the fields say which part is shown."""
    page = client.get(f"/jobs/{job_id}?from=11&to=19").text

    controls = page.partition('id="chart-controls"')[2].partition("</form>")[0]
    assert 'name="from" type="number"' in controls
    assert 'value="11"' in controls
    assert 'name="to" type="number"' in controls
    assert 'value="19"' in controls
    assert drawn(client, job_id, page, "from=11&to=19") == list(range(11, 20))


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [("from=&to=", (1, 30)), ("from=&to=9", (1, 9)), ("from=19&to=11", (11, 19))],
)
def test_an_empty_field_leaves_the_end_open_and_their_order_does_not_matter(
    client: TestClient, job_id: int, typed: str, shown: tuple[int, int]
) -> None:
    """What a browser sends for an untouched field is no mistake."""
    answer = client.get(f"/jobs/{job_id}?axis=step&smooth=0&{typed}")

    assert answer.status_code == 200
    places = drawn(client, job_id, answer.text, typed)
    assert (places[0], places[-1]) == shown
