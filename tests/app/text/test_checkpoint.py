"""A run's checkpoint, and what one does with it: page, command line and REST say the same."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.app.night import Attempt, night, queue
from worker.db.connection import Database
from worker.queue.pruning import prune_one

Cockpit = Callable[..., Any]
USES = ("load", "merge", "serve", "continue", "export")


def keep(attempt: Attempt, step: int, file: str = "model/config.json") -> Path:
    """A checkpoint with `selected` on it; the folder of its model."""
    model = attempt.run.checkpoint(step) / file
    model.parent.mkdir(parents=True)
    model.write_text("{}")
    attempt.run.selected.unlink(missing_ok=True)
    attempt.run.selected.symlink_to(Path("checkpoints") / attempt.run.checkpoint(step).name)
    return model.parent


def box(client: TestClient, number: int) -> dict[str, str]:
    """The checkpoint's box on the page, by the name of the line; its heading under `what`."""
    page = client.get(f"/jobs/{number}").text.partition('class="ckpt"')[2].partition("</section>")
    lines = re.findall(r"<dt>(\w+)</dt>\s*<dd><code[^>]*>(.*?)</code>", page[0], re.DOTALL)
    heading = re.search(r"<h2[^>]*>Checkpoint, (.*?)</h2>", page[0])
    found = {name: html.unescape(text) for name, text in lines}
    return found | ({"what": heading[1]} if heading else {})


@pytest.mark.parametrize(
    ("published", "file", "what"),
    [
        (0, "model/config.json", "step 0, the base, a whole model"),
        (6, "model/adapter_config.json", "step 6, an adapter"),
        (6, "adapter/adapter_config.json", "step 6, an adapter"),
        (6, "config.json", "step 6, a whole model"),
    ],
)
def test_page_command_line_and_rest_say_the_same_of_the_published_checkpoint(
    client: TestClient, cockpit: Cockpit, db: Database, published: int, file: str, what: str
) -> None:
    """Held-out picked step 6; whatever was published instead is never called step 6."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        path = keep(attempt, published, file).resolve()
        attempt.finish(verdict="gain", selected_step=6, published_step=published)

    rest = client.get(f"/api/v1/jobs/{number}").json()["checkpoint"]
    said = cockpit("show", str(number)).out

    assert (rest["step"], rest["path"], rest["what"]) == (published, str(path), what)
    assert tuple(rest["commands"]) == USES
    assert json.loads(cockpit("show", str(number), "--json").out)["checkpoint"] == rest
    assert box(client, number) == {"what": what, "path": str(path), **rest["commands"]}
    assert f"published     {what}: {path}" in said
    assert all(f"{name:<14}{line}\n" in said for name, line in rest["commands"].items())
    assert ("picked        step 6 by held-out rows" in said) is (published == 0)
    assert "\nselected " not in said


def test_commands_name_what_was_published_by_the_jobs_number_alone(
    client: TestClient, db: Database
) -> None:
    """An adapter is merged before a server takes it; a whole model is served as it is."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        path = keep(attempt, 6, "adapter/adapter_config.json")
        (path / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen3-4B"}')
        attempt.finish(verdict="gain", selected_step=6, published_step=6)

    told = client.get(f"/api/v1/jobs/{number}").json()["checkpoint"]["commands"]

    merge = f"cockpit merge {number} --to models/job-{number}-step-6"
    assert told["merge"] == merge
    assert told["serve"] == f"{merge} && vllm serve models/job-{number}-step-6 --port 8001"
    assert told["continue"] == f"cockpit enqueue --from {number}"
    assert told["export"].startswith(f"cockpit enqueue requant --set base={number} ")


def test_before_the_report_the_best_gate_so_far_is_named_with_its_step(
    client: TestClient, cockpit: Cockpit, db: Database
) -> None:
    """No checkpoint, no box; `selected` may move, so commands name the step."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        before = cockpit("show", str(number)).out
        assert box(client, number) == {}
        path = keep(attempt, 4).resolve()
        said = cockpit("show", str(number)).out
        shown = box(client, number)

    assert "selected" not in before
    assert f"selected      step 4, a whole model: {path}" in said
    assert shown["path"] == str(path)
    assert shown["continue"] == f"cockpit enqueue --from {number}@4"
    assert f"cockpit merge {number}@4 " in shown["merge"]


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
    assert box(client, number) == {}
    assert client.get(f"/api/v1/jobs/{number}").json()["checkpoint"] is None
