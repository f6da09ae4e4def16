"""The leaderboard through every door: page, REST, command line and files."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from starlette.testclient import TestClient

from app.web.score_file import COLUMNS, flat
from engine.contract import kinds, registry
from tests.app.conftest import Said
from tests.app.pages.test_pages import words
from tests.app.scored_by_jobs import SCORER
from tests.worker.read.scored import put, score
from worker.db.connection import Database, open_database
from worker.drain import drain
from worker.queue.submit import enqueue
from worker.read.scores.leaderboard import Conditions, every_score
from worker.settings import WorkerSettings

Cockpit = Callable[..., Said]
API = "/api/v1/leaderboard"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """The data directory of two jobs that ran, of a kind that scores its own checkpoints: the first
    is better on gsm8k, the second one by far on ifeval.
    """
    place = tmp_path_factory.mktemp("ran")
    (place / "kinds").mkdir()
    (place / "kinds/scorer.py").write_text(SCORER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTLANE_KINDS_PATH", str(place / "kinds"))
        patch.setattr(kinds, "__path__", [*kinds.__path__, str(place / "kinds")])
        registry.kinds.cache_clear()
        settings = WorkerSettings(data_dir=place / "data", lock_dir=place / "locks")
        with open_database(settings) as db:
            first, second = (
                enqueue(db, "scorer", {"solved": solved, "base": base}, actor="test", name=name)
                for name, base, solved in (
                    ("first", "tiny", {"gsm8k": [10, 24], "ifeval": [2, 3]}),
                    ("=second", "small", {"gsm8k": [10, 20], "ifeval": [20, 39]}),
                )
            )
        drain(settings)
    registry.kinds.cache_clear()
    return settings.data_dir, first, second


@pytest.fixture
def scored(ran: tuple[Path, int, int], settings: WorkerSettings) -> tuple[int, int]:
    """A copy of it; to be asked for before the database is opened."""
    shutil.copytree(ran[0], settings.data_dir)
    return ran[1], ran[2]


def board(client: TestClient, **wanted: Any) -> dict[str, Any]:
    answer = client.get(API, params=wanted)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def measure(client: TestClient, bench: str) -> str:
    [found] = [one["measure"] for one in board(client)["columns"] if one["bench"] == bench]
    return str(found)


def order(client: TestClient, **wanted: Any) -> list[tuple[int, int]]:
    return [(line["run"], line["step"]) for line in board(client, **wanted)["lines"]]


def ref(client: TestClient, bench: str, run: int, step: int) -> str:
    found, column = board(client), measure(client, bench)
    [line] = [one for one in found["lines"] if (one["run"], one["step"]) == (run, step)]
    return str(line["cells"][column]["ref"])


@pytest.mark.requirement("UI-09")
def test_jobs_that_score_fill_one_column_a_bench_each_in_its_own_order(
    scored: tuple[int, int], client: TestClient, cockpit: Cockpit
) -> None:
    """From the engine's events to page, REST and terminal. By the sum, or the mean, of both benches
    the second job would come first in both orders.
    """
    first, second = scored
    gsm8k, ifeval = measure(client, "gsm8k"), measure(client, "ifeval")

    assert order(client, column=gsm8k)[:2] == [(first, 10), (second, 10)]
    assert order(client, column=ifeval)[:2] == [(second, 10), (second, 0)]
    assert [line["run"] for line in board(client, column=gsm8k)["lines"]] == [
        first,
        second,
        *sorted((first, second), reverse=True),
    ]
    assert order(client, column=gsm8k, best="true") == [(first, 10), (second, 10)]

    shown = words(client.get(f"/leaderboard?column={gsm8k}").text)
    assert "By the score on gsm8k, strict-match, and on that alone" in shown
    assert shown.index("60.0 %") < shown.index("50.0 %")
    said = cockpit("leaderboard", "--column", ifeval)
    lines = said.out.splitlines()
    assert lines[1].startswith(f"#{second} =second, step 10")
    assert "By the score on ifeval, strict-match, and on that alone" in said.err


@pytest.mark.requirement("UI-09")
def test_a_line_says_what_a_score_is_worth(scored: tuple[int, int], client: TestClient) -> None:
    """n, interval, what was lost, the change, the job, its hashes, and what became of it."""
    column = measure(client, "gsm8k")
    lines = {(one["run"], one["step"]): one for one in board(client)["lines"]}
    after, before = lines[scored[0], 10], lines[scored[0], 0]
    cell = after["cells"][column]

    assert (after["chosen"], after["published"]) == (True, False)
    assert (before["chosen"], before["published"]) == (False, True)
    assert (cell["n"], cell["score"], cell["job_id"]) == (40, 0.6, scored[0])
    assert cell["low"] < 0.6 < cell["high"]
    assert (cell["truncated"], cell["unparsed"], cell["picked"]) == (0.1, 0.2, False)
    assert round(cell["change"]["lift"], 6) == 0.35
    assert len(cell["config_hash"]) == len(cell["data_hash"]) == 64

    page = client.get("/leaderboard?bench=gsm8k").text
    for told in ("60.0 %", "+35.0 points", "truncated 10.0", "unparsed 20.0", "chosen", "n 40"):
        assert told in words(page)
    assert cell["config_hash"][:8] in page
    assert cell["data_hash"][:8] in page


@pytest.mark.requirement("UI-09")
def test_gates_are_scores_and_the_rows_that_picked_say_so(
    scored: tuple[int, int], client: TestClient
) -> None:
    """They are the runs' own rows: asked for by name, each run by itself."""
    found = board(client, bench="own", run=scored[0])
    [column] = found["columns"]
    assert (column["runner"], column["split"]) == ("gate", "select")
    assert all(cell["picked"] for line in found["lines"] for cell in line["cells"].values())
    assert "these rows picked it" in words(client.get("/leaderboard?bench=own").text)
    assert len(board(client, bench="own")["columns"]) == 2  # their rows have no hash


@pytest.mark.requirement("UI-09")
def test_two_presses_test_two_scores(
    scored: tuple[int, int], client: TestClient, cockpit: Cockpit
) -> None:
    """Without script: the first button picks, the second one is a pair in the address."""
    before, after = (ref(client, "gsm8k", scored[0], step) for step in (0, 10))
    page = client.get("/leaderboard").text
    assert f'name="pick" value="{before}"' in page

    page = client.get("/leaderboard", params={"pick": before}).text
    assert f'name="pair" value="{before}~{after}"' in page
    assert "Chosen: 25.0 % of #1 first, base on gsm8k, strict-match." in words(page)

    page = words(client.get("/leaderboard", params={"pair": f"{before}~{after}"}).text)
    for told in ("25.0 % → 60.0 %", "+35.0 points", "14, 0", "better", "1 pair was tested."):
        assert told in page
    answer = client.get(f"{API}/pairs", params={"pair": f"{before}~{after}"}).json()
    [pair] = answer["pairs"]
    assert (pair["n"], pair["gained"], pair["lost"], answer["tested"]) == (40, 14, 0, 1)
    assert pair["p_value"] < 0.001
    said = cockpit("leaderboard", "--pair", f"{before}~{after}")
    assert "better; +35.0 points" in said.out
    assert "1 pair was tested." in said.err


def test_two_scores_of_different_benches_are_refused_at_every_door(
    scored: tuple[int, int], client: TestClient, cockpit: Cockpit
) -> None:
    """The page says it in its place, and keeps the rest."""
    pair = "~".join(ref(client, bench, scored[0], 10) for bench in ("gsm8k", "ifeval"))
    page = client.get("/leaderboard", params={"pair": pair})
    assert page.status_code == 200
    assert "measure different things: bench is gsm8k and ifeval" in words(page.text)
    answer = client.get(f"{API}/pairs", params={"pair": pair})
    assert answer.headers["content-type"] == "application/problem+json"
    assert "measure different things" in answer.json()["detail"]
    said = cockpit("leaderboard", "--pair", pair)
    assert (said.code, "measure different things" in said.err) == (2, True)


def test_the_run_page_has_its_scores_step_by_step(
    scored: tuple[int, int], client: TestClient
) -> None:
    """With a link into the leaderboard. The first line says the last of them too."""
    page = client.get(f"/jobs/{scored[0]}").text
    shown = words(page)
    assert shown.rindex("25.0 %") < shown.rindex("60.0 %")
    assert f"/leaderboard?run={scored[0]}" in page


def test_an_evaluation_shows_what_it_scored_and_before_that_nothing(
    client: TestClient, db: Database
) -> None:
    """A job that scores others' checkpoints has no pass@k."""
    rows = {"source": "embedded:addition", "verifier": "exact"}
    benches = [rows | {"name": name} for name in ("gsm8k", "ifeval")]
    config = {"base": "embedded:qwen3-tiny", "benches": benches}
    job_id = enqueue(db, "eval_rerun", config, actor="test", force=True)
    assert client.get(f"/jobs/{job_id}").status_code == 200

    put(db, job_id, score("gsm8k", run=None), score("ifeval", run=None))
    page = client.get(f"/jobs/{job_id}").text
    assert "1 checkpoint on gsm8k, ifeval" in words(page)
    assert "/leaderboard?bench=gsm8k&amp;bench=ifeval" in page


# --- as files ---


def test_csv_parquet_and_json_hold_the_same_rows(
    scored: tuple[int, int], client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """Every score that meets the conditions, a line each; by REST and by the command."""
    asked = {"bench": "gsm8k"}
    told = client.get(f"{API}/scores", params=asked | {"format": "json"}).json()
    assert len(told) == 4
    assert {row["score"] for row in told} == {0.25, 0.6, 0.5}
    by_rest = client.get(f"{API}/scores", params=asked | {"format": "csv"}).text
    table = list(csv.DictReader(io.StringIO(by_rest)))
    parquet = client.get(f"{API}/scores", params=asked | {"format": "parquet"}).content
    rows = pyarrow.parquet.read_table(io.BytesIO(parquet)).to_pylist()
    assert rows == told
    assert [(float(row["score"]), row["picked"]) for row in table] == [
        (row["score"], "false") for row in told
    ]

    files = tmp_path / "s.csv", tmp_path / "s.parquet"
    said = cockpit(
        "leaderboard", "--bench", "gsm8k", "--csv", str(files[0]), "--parquet", str(files[1])
    )
    assert said.code == 0
    assert files[0].read_text() == by_rest.replace("\r\n", "\n")
    assert pyarrow.parquet.read_table(files[1]).to_pylist() == rows


def test_a_name_that_begins_a_formula_is_guarded_in_csv(client: TestClient, db: Database) -> None:
    """A spreadsheet would reckon with it; the numbers stay numbers."""
    job_id = enqueue(db, "rl_run", {"base": "embedded:qwen3-tiny"}, actor="test", force=True)
    put(db, job_id, score("=cmd()", checkpoint="-step", base="@base", n=40))
    text = client.get(f"{API}/scores", params={"format": "csv"}).text
    [row] = csv.DictReader(io.StringIO(text))
    assert (row["bench"], row["checkpoint"], row["base"]) == ("'=cmd()", "'-step", "'@base")
    assert (row["score"], row["n"]) == ("0.5", "40")


def test_every_column_of_a_file_is_there_also_without_a_score(
    client: TestClient, db: Database
) -> None:
    """A script finds what it asks for by name."""
    assert client.get(f"{API}/scores", params={"format": "csv"}).text.strip() == ",".join(COLUMNS)
    assert client.get(f"{API}/scores").json() == []
    empty = client.get(f"{API}/scores", params={"format": "parquet"}).content
    assert pyarrow.parquet.read_table(io.BytesIO(empty)).column_names == list(COLUMNS)

    job_id = enqueue(db, "rl_run", {"base": "embedded:qwen3-tiny"}, actor="test", force=True)
    put(db, job_id, score())
    [one] = every_score(db, Conditions())
    assert set(flat(one)) == set(COLUMNS)


def test_parquet_without_its_extra_is_refused_with_the_way_out(
    client: TestClient, cockpit: Cockpit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a byte is written."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = client.get(f"{API}/scores", params={"format": "parquet"})
    assert answer.status_code == 422
    assert "pip install 'nightlane[parquet]'" in answer.json()["detail"]
    said = cockpit("leaderboard", "--parquet", str(tmp_path / "s.parquet"))
    assert said.code == 2
    assert not (tmp_path / "s.parquet").exists()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("bench=nothing", "bench"),
        ("shots=many", "shots"),
        ("shots=-1", "shots"),
        ("column=x", "column"),
        ("best=yes", "best"),
        ("best=true&sort=newest", "best"),
        ("colour=red", "colour"),
        ("pair=1~2", "pair"),
        ("limit=0", "limit"),
    ],
)
def test_a_wrong_query_is_refused_by_its_field(client: TestClient, query: str, field: str) -> None:
    """On the page as over REST."""
    page = client.get(f"/leaderboard?{query}", headers={"accept": "text/html"})
    assert page.status_code == 422
    assert field in words(page.text)
    answer = client.get(f"{API}{'/pairs' if field == 'pair' else ''}?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in json.dumps(answer.json())


def test_an_empty_leaderboard_names_the_next_command(client: TestClient, cockpit: Cockpit) -> None:
    """As every empty page does."""
    assert "cockpit enqueue rl_run" in client.get("/leaderboard").text
    said = cockpit("leaderboard")
    assert (said.code, said.out) == (0, "")
    assert "nothing has been scored yet" in said.err
