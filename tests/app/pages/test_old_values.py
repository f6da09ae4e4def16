"""Values without a moment: drawn all the same, with the way to a time axis."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from tests.app.conftest import Said
from tests.app.night import night, queue
from worker.db.connection import Database
from worker.db.tables import metric, metric_rollup


@pytest.mark.requirement("UI-02")
def test_a_run_without_moments_names_the_command_that_brings_them(
    client: TestClient, db: Database, cockpit: Callable[..., Said]
) -> None:
    """Along time it is drawn by step and says why; after the command it is drawn by time."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.5)
        for step in (1, 2, 3):
            attempt.step(step, 0.5)
        attempt.finish()
    with db.write_tx() as conn:  # as events that bear no time leave them
        conn.execute(update(metric).values(at=None))
        conn.execute(update(metric_rollup).values(first_at=None, last_at=None))
    address = f"/jobs/{number}/charts/learning.json?axis=time"

    drawn = client.get(address).json()
    assert drawn["x_label"] == "step"
    assert f"cockpit reindex {number} brings those from its events" in drawn["said"]
    tokens = client.get(f"/jobs/{number}/charts/learning.json?axis=tokens").json()
    assert tokens["said"].endswith("this run has no tokens recorded")

    assert cockpit("reindex", str(number)).code == 0

    drawn = client.get(address).json()
    assert drawn["x_label"] == "minutes since the first start"
    assert "reindex" not in drawn["said"]
