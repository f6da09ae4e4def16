"""Where a run's checkpoint is: the published one's path and step, on the page and in `show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.night import Attempt, night, queue
from worker.db.connection import Database
from worker.queue.pruning import prune_one

Cockpit = Callable[..., Any]


def keep(attempt: Attempt, step: int, file: str = "model/config.json") -> Path:
    """A checkpoint with `selected` on it; the folder of its model."""
    model = attempt.run.checkpoint(step) / file
    model.parent.mkdir(parents=True)
    model.write_text("{}")
    attempt.run.selected.unlink(missing_ok=True)
    attempt.run.selected.symlink_to(Path("checkpoints") / attempt.run.checkpoint(step).name)
    return model.parent


@pytest.mark.parametrize(
    ("published", "file", "what"),
    [
        (0, "model/config.json", "step 0, the base, a whole model"),
        (6, "model/adapter_config.json", "step 6, an adapter"),
        (6, "adapter/adapter_config.json", "step 6, an adapter"),
        (6, "config.json", "step 6, a whole model"),
    ],
)
def test_the_published_checkpoint_is_named_with_its_step_and_path(
    client: TestClient, cockpit: Cockpit, db: Database, published: int, file: str, what: str
) -> None:
    """Held-out picked step 6; whatever was published instead is never called step 6."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        path = keep(attempt, published, file)
        attempt.finish(verdict="gain", selected_step=6, published_step=published)

    said = cockpit("show", str(number)).out
    page = " ".join(client.get(f"/jobs/{number}").text.split())

    assert f"published     {what}: {path.resolve()}" in said
    assert ("picked        step 6 by held-out rows" in said) is (published == 0)
    assert "\nselected " not in said
    assert f"Published checkpoint, {what}: <code>{path.resolve()}</code>" in page
    assert "picked by held-out" in page


def test_before_the_report_the_best_gate_so_far_is_named(
    client: TestClient, cockpit: Cockpit, db: Database
) -> None:
    """No checkpoint, no line; one that nobody published is not called so."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        before = cockpit("show", str(number)).out
        path = keep(attempt, 4).resolve()
        said = cockpit("show", str(number)).out
        page = " ".join(client.get(f"/jobs/{number}").text.split())

    assert "selected" not in before
    assert f"selected      step 4, a whole model: {path}" in said
    assert f"Checkpoint of the best gate so far, step 4, a whole model: <code>{path}" in page


def test_a_checkpoint_that_was_thrown_away_has_no_path(
    client: TestClient, cockpit: Cockpit, db: Database
) -> None:
    """The step stays known, the folder is gone."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        keep(attempt, 6)
        attempt.finish(verdict="gain", selected_step=6, published_step=6)
    prune_one(db, number, actor="test", selected_too=True)

    said = cockpit("show", str(number)).out

    assert "published " not in said
    assert "picked        step 6 by held-out rows" in said
    assert "Published checkpoint" not in client.get(f"/jobs/{number}").text
