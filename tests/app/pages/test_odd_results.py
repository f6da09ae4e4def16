"""Pages over results that no engine of ours would write: of another version, or of a broken disk.

A page that cannot be opened hides every run on it; a value that is not what it should be is not
known, and no error.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from starlette.testclient import TestClient

from tests.app.night import night, queue
from worker.db.connection import Database
from worker.db.tables import job
from worker.report.snapshot import latest_morning

FIELDS = (
    "phase", "step", "max_steps", "pool_score", "last_heldout", "gate", "eta_s", "eta_at", "base",
    "domain", "keep_rate", "n_used", "adv_spread", "trained", "alerts", "mem", "stage2", "status",
    "heldout_before", "heldout_after", "lift", "lift_ci95", "p_better", "p_value", "verdict",
    "report_n", "selected_step", "steps", "seconds", "peak_gb", "published_step", "mem_trace",
    "seconds_per_point", "diagnosis", "lineage", "step_history", "gates", "trials", "advice",
    "events_left_out", "values_left_out", "heldout_points", "headroom", "temp", "warmup", "error",
)  # fmt: skip
"""What an engine may say of a run, and what it said once."""
NAMES = [*FIELDS, "n", "first", "text", "code", "step"]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "NaN", "gain", "x" * 500, "<b>", "\u202e", 0, -1, 10**30, -(10**400)]),
    st.sampled_from([0.5, -0.5, 1e308, -1e308, 5e-324, 1e15]),
)
ODD_TREE = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=6,
)
ADDRESSES = (
    "/", "/?show=all", "/jobs/{a}", "/jobs/{a}?tab=memory", "/jobs/{a}?tab=repro",
    "/report?date={night}", "/queue", "/compare?a={a}&b={b}", "/jobs/{a}/samples",
    "/api/v1/jobs/{a}", "/api/v1/jobs", "/machine", "/strip", "/jobs/{a}?part=live",
)  # fmt: skip


SHORT = ("/", "/jobs/{a}", "/report?date={night}", "/compare?a={a}&b={b}", "/api/v1/jobs/{a}")


@pytest.fixture
def pair(db: Database) -> tuple[int, int]:
    """A run that ended and one that goes on."""
    ended, running = queue(db), queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.5)
        attempt.step(1, 0.5)
        attempt.finish()
        lane.start()
    return ended, running


@pytest.mark.requirement("UI-02")
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.sampled_from(FIELDS), ODD_TREE, max_size=8))
def test_whatever_a_result_holds_every_page_is_there(
    client: TestClient, db: Database, pair: tuple[int, int], result: dict[str, Any]
) -> None:
    """Of the run that ended and of the one that goes on."""
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id.in_(pair)).values(result=result))

    night_now = latest_morning(db, time.time())
    for a, b in (pair, pair[::-1]):
        for address in ADDRESSES:
            answer = client.get(address.format(a=a, b=b, night=night_now))
            assert answer.status_code in {200, 303}, (address, answer.text[:300])
            assert "inf %" not in answer.text


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize(
    "value", ["text", [1, "a"], {"a": {}}, 10**400, 1e308, -1e308, True, [None, None], [[]]]
)
def test_one_odd_field_among_sound_ones_hides_no_page(
    client: TestClient, db: Database, pair: tuple[int, int], value: Any
) -> None:
    """The others are read as ever."""
    with db.read() as conn:
        sound = conn.execute(job.select().where(job.c.id == pair[0])).one().result

    night_now = latest_morning(db, time.time())
    for field in FIELDS:
        with db.write_tx() as conn:
            odd = update(job).where(job.c.id.in_(pair)).values(result={**sound, field: value})
            conn.execute(odd)
        for address in SHORT:
            answer = client.get(address.format(a=pair[0], b=pair[1], night=night_now))
            assert answer.status_code == 200, (field, address, answer.text[:300])
