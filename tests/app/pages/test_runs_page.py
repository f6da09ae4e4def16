"""The table of runs as page and REST: what it shows, what one does to runs there."""

from __future__ import annotations

import csv
import html
import io
import re
from typing import Any

import pytest
from sqlalchemy import Engine, event, update
from starlette.testclient import TestClient

from tests.app.conftest import ORIGIN
from tests.app.night import night, queue
from tests.many_runs import fill_runs
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.states import State
from worker.read import jobs

API = "/api/v1"
HEADERS = {"origin": ORIGIN}


def words(text: str) -> str:
    """The page as one reads it."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def ids(text: str) -> list[int]:
    """The runs of a page, in their order."""
    return [int(number) for number in re.findall(r'<tr id="run-(\d+)"', text)]


@pytest.mark.requirement("UI-12")
def test_sorting_and_filtering_see_every_run_and_missing_values_come_last(
    client: TestClient, db: Database
) -> None:
    """By gain, the largest first; failed runs have none."""
    fill_runs(db, 39)

    every = client.get("/runs?group=none").text
    rows = client.get(f"{API}/runs?group=none").json()

    assert ids(every) == [row["id"] for row in rows]
    gains = [row["gain"] for row in rows]
    told = [gain for gain in gains if gain is not None]
    assert told == sorted(told, reverse=True)
    assert gains[len(told) :] == [None] * 3
    few = client.get(f"{API}/runs", params={"q": "lr:1e-5 base:*qwen* gain:>-1 -tag:night"}).json()
    assert few
    assert all(row["gain"] > -1 and "night" not in row["tag"] for row in few)
    assert {row["name"].rpartition("-s")[0] for row in few} == {"grpo-1.7b-lr1e-5"}


@pytest.mark.requirement("UI-12")
def test_a_group_says_its_mean_with_the_interval_over_its_runs(
    client: TestClient, db: Database
) -> None:
    """Student over the runs, not over their rows; sums of money and time."""
    fill_runs(db, 3)
    rows = client.get(f"{API}/runs").json()
    mean = sum(row["gain"] for row in rows) / 3

    text = client.get("/runs").text

    head = words(text.split('<tr class="group">')[1].split("</tr>")[0])
    assert head.startswith("mix-4b-lr3e-6 3 runs")
    assert f"+{mean:.1f} ±" in head
    assert "mean of 3" in head
    assert "$5.22" in head
    assert "by base" in words(client.get("/runs?group=base").text)


@pytest.mark.requirement("UI-12")
def test_any_setting_bench_or_series_is_a_column(client: TestClient, db: Database) -> None:
    """By its dotted name, its short one, the bench's, the series'."""
    fill_runs(db, 2)

    text = client.get("/runs?columns=data.source,lr,math,train/kl&sort=-train/kl").text

    for said in ("gsm8k.jsonl", "3e-6", "n 500", "0.03333"):
        assert said in text
    assert re.search(r'aria-sort="descending"><a [^>]*>train/kl', text)


@pytest.mark.requirement("UI-12")
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/runs?q=gan:>2", "did you mean gain"),
        ("/runs?q=lr:>x", "a number, with 'x'"),
        ("/runs?sort=nothing", "is no column"),
        ("/runs?columns=lr,zz", "is no column"),
        ("/runs?group=zz", "is no column"),
        ("/runs?q=" + "a" * 500, "at most 400"),
    ],
)
def test_what_cannot_be_read_is_said_and_all_runs_are_shown(
    address: str, said: str, client: TestClient, db: Database
) -> None:
    """On the page in a sentence, over REST as a 422; nothing else changes."""
    fill_runs(db, 2)

    answer = client.get(address)

    assert answer.status_code == 200
    assert said in words(answer.text)
    assert len(ids(answer.text)) == 2
    assert client.get(address.replace("/runs", f"{API}/runs")).status_code == 422


@pytest.mark.requirement("UI-12")
def test_the_table_is_read_in_a_few_statements_however_many_runs_there_are(
    client: TestClient, db: Database
) -> None:
    """And who looks again while nothing was written reads none of them."""
    asked: list[str] = []

    def heard(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if any(table in statement for table in ("metric", "job_tag", "eval_score")):
            asked.append(statement)  # and not what the server looks for beside the page

    client.get("/runs")  # whoever comes first is also written down as having come
    event.listen(Engine, "before_cursor_execute", heard)
    counts = []
    for _ in range(2):
        fill_runs(db, 15)
        asked.clear()
        client.get("/runs")
        counts.append(len(asked))
        asked.clear()
        client.get("/runs")
        assert asked == []
    event.remove(Engine, "before_cursor_execute", heard)

    assert counts[0] == counts[1] < 6


@pytest.mark.requirement("UI-12")
def test_what_is_shown_is_exported_as_csv_parquet_and_json(
    client: TestClient, db: Database
) -> None:
    """The same runs in the same order with the same columns; intervals as two numbers."""
    parquet = pytest.importorskip("pyarrow.parquet")
    fill_runs(db, 20)
    asked = {"q": "verdict:gain", "columns": "lr,math", "sort": "math"}

    told = client.get(f"{API}/runs", params=asked).json()
    table = list(
        csv.DictReader(
            io.StringIO(client.get(f"{API}/runs", params={**asked, "format": "csv"}).text)
        )
    )
    columns = parquet.read_table(
        io.BytesIO(client.get(f"{API}/runs", params={**asked, "format": "parquet"}).content)
    ).to_pylist()

    assert [int(row["id"]) for row in table] == [row["id"] for row in told]
    assert columns == told
    assert all(row["math_low"] < row["math"] < row["math_high"] for row in told)
    assert ids(client.get("/runs", params={**asked, "group": "none"}).text) == [
        row["id"] for row in told
    ]


@pytest.mark.requirement("UI-12")
def test_runs_are_tagged_renamed_noted_and_archived_with_a_row_in_the_audit(
    client: TestClient, db: Database
) -> None:
    """Of chosen runs by a form, of one over REST; an archived run is found in the archive."""
    one, two = fill_runs(db, 2)

    client.post(
        "/runs/edit", data={"job": [one, two], "what": "tag", "value": "paper, x"}, headers=HEADERS
    )
    client.post("/runs/edit", data={"job": one, "what": "tag", "value": "-x"}, headers=HEADERS)
    client.patch(f"{API}/jobs/{two}", json={"name": "best so far", "note": "for Thursday"})
    form: dict[str, Any] = {"data": {"job": one}, "headers": HEADERS}
    answer = client.post("/runs/archive", **form, follow_redirects=False)

    assert answer.headers["location"] == f"/runs?did=archive&job={one}"
    assert jobs.get_job(db, one).tags == ["paper"]
    assert jobs.get_job(db, two).tags == ["paper", "x"]
    shown = client.get(answer.headers["location"]).text
    assert ids(shown) == [two]
    assert "Archived 1 run." in words(shown)
    assert "best so far" in shown
    assert ids(client.get("/runs?archived=true").text) == [one]
    assert [entry.why for entry in jobs.audit(db, two)][
        -1
    ] == "changed: name=best so far, note=for Thursday"
    client.post("/runs/restore", data={"job": one}, headers=HEADERS)
    assert set(ids(client.get("/runs").text)) == {one, two}
    assert "Renamed" not in words(client.get("/runs?did=%3Cscript%3E").text)


@pytest.mark.requirement("UI-12")
def test_a_deleted_run_frees_its_disk_and_keeps_its_cost_and_its_audit(
    client: TestClient, db: Database
) -> None:
    """The form says what it frees; afterwards no list has it, and its row is still there."""
    one, two = fill_runs(db, 2)
    folder = db.settings.runs_dir / str(one)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/weights").write_bytes(b"w" * 3_000_000)

    asked = words(client.get(f"/runs/delete?job={one}").text)
    client.post("/runs/delete", data={"job": one}, headers=HEADERS)

    assert "frees 3.0 MB" in asked
    assert not folder.exists()
    assert ids(client.get("/runs").text) == [two]
    assert [found.id for found in jobs.list_jobs(db)] == [two]
    assert jobs.get_job(db, one).deleted_at is not None
    assert jobs.audit(db, one)[-1].why.startswith("deleted: 3.0 MB")
    assert jobs.counts(db)[State.SUCCEEDED] == 1
    assert client.delete(f"{API}/jobs/{one}").status_code == 409


@pytest.mark.requirement("UI-12")
def test_a_running_run_is_never_deleted_and_one_that_others_began_from_only_when_said(
    client: TestClient, db: Database
) -> None:
    """Over REST and on the page, with the reason."""
    [parent] = fill_runs(db, 1)
    root = db.settings.runs_dir / str(parent)
    (root / "checkpoints/step-000010").mkdir(parents=True)
    child = fill_runs(db, 1)[0]
    _began_from(db, child, str(root / "checkpoints/step-000010"))
    queued = queue(db)
    with night(db) as lane:
        lane.start()
        refused = client.delete(f"{API}/jobs/{queued}")
        assert refused.status_code == 409
        assert "only a run that is over can be deleted" in refused.json()["detail"]

    asked = client.get(f"{API}/jobs/{parent}/deletion").json()
    assert asked["descendants"] == [child]
    assert client.delete(f"{API}/jobs/{parent}").status_code == 409
    assert root.exists()
    assert f"job {child} began from its checkpoints" in words(
        client.get(f"/runs/delete?job={parent}").text
    )
    assert client.delete(f"{API}/jobs/{parent}?descendants=true").status_code == 200
    assert not root.exists()


def _began_from(db: Database, job_id: int, path: str) -> None:
    with db.write_tx() as conn:
        config = jobs.get_job(db, job_id).config | {"base": path}
        conn.execute(update(job).where(job.c.id == job_id).values(config=config))


@pytest.mark.requirement("UI-12")
def test_a_view_is_saved_under_a_name_and_leads_back_to_it(
    client: TestClient, db: Database
) -> None:
    """By a form and over REST; a name that is taken is taken over."""
    fill_runs(db, 20)
    query = "q=tag%3Anight&sort=math"
    client.post("/runs/views", data={"name": "nights", "query": query}, headers=HEADERS)

    text = client.get("/runs").text

    link = re.search(r'<a href="(/runs\?[^"]+)"><bdi>nights</bdi> <small>(\d+)', text)
    assert link is not None
    shown = client.get(html.unescape(link[1])).text
    assert len(ids(shown)) == int(link[2]) == 5
    body = {"name": "nights", "query": "q=verdict:gain"}
    assert client.post(f"{API}/runs/views", json=body).status_code == 201
    assert client.get(f"{API}/runs/views").json() == [body]
    assert client.delete(f"{API}/runs/views/nights").status_code == 204
    assert client.delete(f"{API}/runs/views/nights").status_code == 404


@pytest.mark.requirement("UI-12")
def test_a_demonstration_is_marked_and_never_leads(client: TestClient, db: Database) -> None:
    """However large its gain."""
    fill_runs(db, 3)
    demo = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.finish(
            verdict="gain", lift=0.5, lift_ci95=[0.4, 0.6], heldout_before=0.1, heldout_after=0.6
        )

    text = client.get("/runs").text

    assert ids(text)[0] == demo
    row = text.split(f'<tr id="run-{demo}"')[1].split("</tr>")[0]
    assert "demo" in words(row)
    assert "Best of 3 on held-out mix-4b-lr3e-6" in words(text)
