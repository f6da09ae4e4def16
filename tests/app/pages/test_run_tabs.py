"""The run page's tabs: log, events, config, repro, and the charts' axes and parts."""

from __future__ import annotations

import datetime
import json
import sys
import time
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from app.web import event_log, log_reader
from app.web.event_log import EventRow, read_events
from app.web.log_reader import WINDOW, read_log
from engine.contract import events
from engine.contract.events import EventLog
from engine.contract.run_dir import RunDir
from tests.app.night import CONFIG, night, queue
from tests.app.pages.test_pages import words
from worker.attempt.provenance import note_provenance
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue import control
from worker.queue.pruning import prune_one
from worker.queue.submit import enqueue

HALF = "first\n" + "a line of the log\n" * 20_000


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path)
    made.attempt(1).root.mkdir(parents=True)
    made.attempt(1).job_file.write_text("{}")
    return made


def test_a_log_of_any_size_is_read_page_by_page_without_gap_or_overlap(run: RunDir) -> None:
    """From the end to the beginning and back, by bytes."""
    run.attempt(1).log.write_text(HALF)
    page = read_log(run.root)
    assert page is not None
    assert page.later is None

    at: int | None = 0
    texts, ends = [], []
    while at is not None:
        page = read_log(run.root, at=at)
        assert page is not None
        texts += [line.text for line in page.lines]
        ends.append((page.start, page.end))
        at = page.later

    assert texts == HALF.splitlines()
    assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]


def test_a_search_finds_what_stands_far_behind_the_first_page(run: RunDir) -> None:
    """Whatever its case; the page begins a little before the line; the next search goes on."""
    run.attempt(1).log.write_text(HALF + "ZeroDivisionError: x\n" + HALF + "needle two\n")

    error = read_log(run.root, first_error=True)
    word = read_log(run.root, at=0, find="NEEDLE")

    assert error is not None
    assert error.hit is not None
    assert error.hit.text == "ZeroDivisionError: x"
    assert error.lines[0].at > len(HALF) - WINDOW
    behind = read_log(run.root, at=error.after_hit, first_error=True)
    assert behind is not None
    assert behind.hit is None
    assert behind.searched_to == behind.size
    assert word is not None
    assert word.hit is not None
    assert word.hit.text == "needle two"


@pytest.mark.parametrize("asked", ["É 7", "é 7", "ÉPREUVE É", "ночь"])
def test_a_log_is_searched_in_either_case_of_any_alphabet(run: RunDir, asked: str) -> None:
    """Its bytes are compared: of a letter beyond English ones both forms are tried."""
    run.attempt(1).log.write_text("x\n" * 600 + "épreuve é 7, НОЧЬ\n" + "y\n" * 9, "utf-8")

    found = read_log(run.root, at=0, find=asked)

    assert found is not None
    assert found.hit is not None
    assert found.hit.text == "épreuve é 7, НОЧЬ"


def test_a_search_that_reaches_its_limit_says_where_it_stopped(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on from there when asked."""
    monkeypatch.setattr(log_reader, "SEARCHED", 1000)
    run.attempt(1).log.write_text("x\n" * 600 + "needle\n")

    first = read_log(run.root, at=0, find="needle")
    assert first is not None
    assert first.searched_to == 1000
    second = read_log(run.root, at=first.searched_to, find="needle")

    assert second is not None
    assert second.hit is not None


def test_one_line_longer_than_a_page_is_shown_in_pieces(run: RunDir) -> None:
    """No page is empty, and each begins where the one before ended."""
    run.attempt(1).log.write_text("y" * (2 * WINDOW + 10))

    seen = 0
    at: int | None = 0
    while at is not None:
        page = read_log(run.root, at=at)
        assert page is not None
        assert page.lines
        seen += sum(len(line.text) for line in page.lines)
        at = page.later

    assert seen == 2 * WINDOW + 10


def test_a_progress_bar_is_shown_as_a_terminal_leaves_it(run: RunDir) -> None:
    """Its last state, without colours; every byte belongs to a page all the same."""
    bar = b"".join(b"\r%3d%%|\x1b[32m####\x1b[0m|" % done for done in range(101))
    text = b"loading\r\n" + bar + b"\n\x1b[31mValueError\x1b[0m: no \x07\r\r\nend\n  5%\r  7%"
    run.attempt(1).log.write_bytes(text)

    page = read_log(run.root)
    found = read_log(run.root, find=" 42%")

    assert page is not None
    shown = [line.text for line in page.lines]
    assert shown == ["loading", "100%|####|", "ValueError: no �", "", "end", "  7%"]
    assert (page.start, page.end, page.size) == (0, len(text), len(text))
    assert page.written_over == 102
    assert found is not None
    assert found.hit is not None
    assert found.hit.text == " 42%|####|", "what was searched for is shown"


def test_a_log_of_one_progress_bar_has_a_line_on_every_page(run: RunDir) -> None:
    """Longer than a page, without a single end of line."""
    run.attempt(1).log.write_bytes(b"".join(b"\r%9d" % step for step in range(20_000)))

    at: int | None = 0
    ends = [0]
    while at is not None:
        page = read_log(run.root, at=at)
        assert page is not None
        assert page.lines
        assert page.start == ends[-1]
        ends.append(page.end)
        at = page.later

    assert ends[-1] == 200_000


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("errors=0 nonfatal", None),
        ("a ValueError: x", True),
        ("it was KILLED", True),
        ("an EXCEPTION", True),
        ("Traceback (most recent call last):", True),
    ],
)
def test_an_error_is_found_wherever_the_pieces_that_are_read_begin(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, before: int, text: str, hit: bool | None
) -> None:
    """A word cut in two is neither lost nor taken for another one."""
    monkeypatch.setattr(log_reader, "_CHUNK", 97)
    monkeypatch.setattr(log_reader, "_OVERLAP", 48)
    line = text.encode()
    for filler in range(100):
        log = b"x" * filler + b"\n" + b"." * (40 * before) + line + b"\n" + b"." * 200
        run.attempt(1).log.write_bytes(log)

        page = read_log(run.root, first_error=True)

        assert page is not None
        found = None if page.hit is None else line in log[page.hit.at :].partition(b"\n")[0]
        assert found == hit


def test_an_attempt_without_a_log_has_none_and_another_one_is_not_shown_instead(
    run: RunDir,
) -> None:
    """The address named it."""
    run.attempt(1).log.write_text("one\n")
    assert read_log(run.root, attempt=2) is None
    assert read_log(run.root / "nowhere") is None


def test_events_are_shown_from_the_newest_backwards_without_gap_or_overlap(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page by bytes; a torn last line is no event; a filter leaves the others out."""
    monkeypatch.setattr(event_log, "WINDOW", 500)
    monkeypatch.setattr(event_log, "MOST", 7)
    lines = [
        {"seq": n, "attempt": 1, "t": 1.0, "type": "gate" if n % 10 == 0 else "note", "step": n}
        for n in range(1, 101)
    ]
    run.events.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"seq": 101, "a')

    seen: list[int] = []
    before: int | None = None
    while True:
        page = read_events(run.root, before)
        seen += [row.seq for row in page.rows]
        before = page.older
        if before is None:
            break

    assert seen == list(range(100, 0, -1))
    assert [row.seq for row in read_events(run.root, None, "gate").rows] == list(
        range(100, 30, -10)
    )


def every_event(run: RunDir, only: str | None = None) -> list[EventRow]:
    """Page by page until there is none older; each page begins before the one behind it."""
    rows: list[EventRow] = []
    before: int | None = None
    while True:
        page = read_events(run.root, before, only)
        rows += page.rows
        if page.older is None:
            return rows
        assert before is None or page.older < before
        before = page.older


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("long", range(440, 1600, 29))
def test_an_event_of_any_length_is_shown_once_and_those_around_it_too(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    """Longer than a window, than all that a page reads, or just as long as one of them."""
    monkeypatch.setattr(event_log, "WINDOW", 250)
    monkeypatch.setattr(event_log, "READ", 600)
    with closing(EventLog(run.events, attempt=1)) as log:
        log.write("note", text="before")
        log.write("finished", status="done", result={"step_history": "x" * long})
        log.write("note", text="behind")

    shown = every_event(run)

    assert [(row.seq, row.type) for row in shown] == [(3, "note"), (2, "finished"), (1, "note")]
    assert "step_history" in shown[1].text
    assert len(shown[1].text) <= event_log.MOST_TEXT
    assert [row.seq for row in every_event(run, "note")] == [3, 1]


@pytest.mark.requirement("UI-02")
def test_the_end_of_a_long_run_is_the_first_of_its_events(client: TestClient, db: Database) -> None:
    """Its result with a thousand steps is longer than what the page reads at once."""
    queue(db)
    history = [{"step": step, "reward_mean": 0.5, "note": "x" * 200} for step in range(1000)]
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("note", level="info", code="x", text="the last step")
        attempt.finish(step_history=history)

    text = words(client.get("/jobs/1?tab=events").text)

    assert "finished" in text.partition("what")[2]
    assert "the last step" in text


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize(
    ("tab", "what", "file"),
    [("log", "log", "attempts/001/engine.log"), ("events", "event", "events.jsonl")],
)
def test_a_tab_says_why_it_is_empty(
    client: TestClient, db: Database, tab: str, what: str, file: str
) -> None:
    """A drain brings what has not run yet, and nothing of what is over."""

    def said(number: int) -> str:
        return words(client.get(f"/jobs/{number}?tab={tab}").text)

    ran, cancelled = queue(db), queue(db)
    assert "cockpit drain runs the queue" in said(ran)
    control.cancel(db, cancelled, actor="test")
    assert f"No {what}: it ended before it ran." in said(cancelled)
    with night(db) as lane:
        attempt = lane.start()
        path = attempt.run.root / file
        attempt.finish()
    path.unlink(missing_ok=True)

    text = said(ran)

    assert f"No {what}: {path} is not there any more, holds none, or cannot be read." in text
    assert "cockpit drain" not in text


@pytest.mark.requirement("UI-03")
def test_an_ended_run_without_its_completions_does_not_say_that_it_never_began(
    client: TestClient, db: Database
) -> None:
    """Somebody threw its directory away; its row knows how far it came."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(40, 0.5)
        attempt.finish()

    text = words(client.get(f"/jobs/{number}/samples").text)

    assert "It came to step 40, but" in text
    assert "before its first step" not in text


@pytest.mark.requirement("UI-02")
def test_the_repro_tab_says_what_is_known_and_what_is_not(client: TestClient, db: Database) -> None:
    """Commit, versions and seed of the newest attempt, and the commands that run it again."""
    queue(db)
    before = words(client.get("/jobs/1?tab=repro").text)
    with night(db) as lane:
        attempt = lane.start()
        note_provenance(attempt.run.attempt(1))
        attempt.finish()

    text = words(client.get("/jobs/1?tab=repro").text)

    assert "Not known, because nobody wrote it down (it has not run yet)" in before
    assert "cockpit retry 1 --fresh" in text
    assert f"{sys.executable} -m engine run again" in text
    assert "seed 0" in text
    assert "pinned versions (constraints.txt), SHA-256" in text
    assert "torch 2." in text


@pytest.mark.requirement("UI-02")
def test_the_config_tab_shows_the_difference_to_the_job_that_it_tries_again(
    client: TestClient, db: Database
) -> None:
    """The same config is said to be the same."""
    first = queue(db)
    control.cancel(db, first, actor="test")
    second = control.retry_fresh(db, first, actor="test")

    text = words(client.get(f"/jobs/{second}?tab=config").text)

    assert f"What differs from rl_run #{first}" in text
    assert "Nothing: the same config was run again." in text


def _measure(db: Database, steps: int) -> int:
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.add("gate", step=0, split="select", score=0.5, n=9, ci95=[0.4, 0.6])
        for step in range(1, steps + 1):
            values = {"pool/score": step / steps, "train/kl": 1.0, "rollout/tokens": 10}
            attempt.add("metric", step=step, values=values)
        attempt.finish()
    return job_id


@pytest.mark.requirement("UI-02")
def test_a_chart_runs_along_steps_tokens_or_time(client: TestClient, db: Database) -> None:
    """Tokens are added up; moments come from the events; both keep the steps for a zoom."""
    job_id = _measure(db, 4)

    def drawn(**query: Any) -> Any:
        return client.get(f"/jobs/{job_id}/charts/kl.json", params=query).json()

    assert drawn()["x"] == [1, 2, 3, 4]
    tokens = drawn(axis="tokens")
    assert (tokens["x"], tokens["steps"]) == ([10, 20, 30, 40], [1, 2, 3, 4])
    assert tokens["x_label"] == "tokens sampled"
    time = drawn(axis="time")
    assert time["x_label"] == "minutes since the first start"
    assert time["x"] == sorted(time["x"])
    part = drawn(axis="tokens", **{"from": 3, "to": 4})
    assert part["x"] == [30, 40]


@pytest.mark.requirement("UI-02")
def test_a_clock_that_was_put_back_folds_no_steps_together(
    client: TestClient, db: Database
) -> None:
    """An hour back in the middle of a run: the minutes go on from where they stood."""
    job_id = queue(db)
    moments = iter([*range(0, 240, 60), *range(-3600 + 240, -3600 + 1000, 60)])
    clock = SimpleNamespace(time=lambda: 1.8e9 + next(moments), monotonic=time.monotonic)
    with mock.patch.object(events, "time", clock), night(db) as lane:
        attempt = lane.start()
        for step in range(1, 9):
            attempt.add("metric", step=step, values={"train/kl": 1.0})
        attempt.finish()

    x = client.get(f"/jobs/{job_id}/charts/kl.json", params={"axis": "time"}).json()["x"]

    apart = [round(after - before, 3) for before, after in pairwise(x)]
    assert apart == [1, 1, 0, 1, 1, 1, 1]


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("tokens", [[-5, -5, -5], [0, 0, 0], [10, -20, 10]])
def test_tokens_that_are_none_do_not_count(
    client: TestClient, db: Database, tokens: list[int]
) -> None:
    """An engine that miscounts has an axis that never goes back, and a page."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step, n in enumerate(tokens, 1):
            attempt.add("metric", step=step, values={"train/kl": 1.0, "rollout/tokens": n})
        attempt.finish()

    page = client.get(f"/jobs/{job_id}?axis=tokens")
    drawn = client.get(f"/jobs/{job_id}/charts/kl.json", params={"axis": "tokens"}).json()

    assert page.status_code == 200
    assert drawn["x"] == list(accumulate(max(0, n) for n in tokens))


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("value", [5e-324, -5e-324, 1e300, -1e300, 1e-310])
@pytest.mark.parametrize("query", ["", "?from=2&to=2", "?axis=time", "?smooth=0.9"])
def test_a_run_of_odd_values_has_a_page(
    client: TestClient, db: Database, value: float, query: str
) -> None:
    """The smallest and the largest that is kept; an interval without its score."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in (1, 2, 3):
            values = {"pool/score": value, "train/kl": value, "rollout/tokens_per_s": value}
            attempt.add("metric", step=step, values=values)
        ci95 = [0.4, value]
        attempt.add("gate", step=2, split="select", score=None, n=9, ci95=ci95)
        attempt.finish()

    assert client.get(f"/jobs/{job_id}{query}").status_code == 200


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize(
    ("each", "places", "label"),
    [
        (300_000, [300_000, 600_000, 900_000], "tokens sampled"),
        (500_000, [0.5, 1, 1.5], "million tokens sampled"),
        (400_000_000, [0.4, 0.8, 1.2], "billion tokens sampled"),
    ],
)
def test_many_tokens_are_counted_in_millions_or_billions(
    client: TestClient, db: Database, each: int, places: list[float], label: str
) -> None:
    """As many zeros as a person reads at an axis."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in (1, 2, 3):
            values = {"train/kl": 1.0, "rollout/tokens": each}
            attempt.add("metric", step=step, values=values)
        attempt.finish()

    drawing = client.get("/jobs/1/charts/kl.json", params={"axis": "tokens"}).json()

    assert (drawing["x"], drawing["x_label"]) == (places, label)


def test_a_run_that_records_no_tokens_says_so_and_is_drawn_by_step(
    client: TestClient, db: Database
) -> None:
    """No axis is made up."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        attempt.finish()

    drawing = client.get("/jobs/1/charts/learning.json?axis=tokens").json()

    assert drawing["x"] == [1]
    assert "this run has no tokens recorded" in drawing["said"]


@pytest.mark.requirement("UI-02")
def test_a_long_run_is_drawn_in_few_points_with_their_envelope(
    client: TestClient, db: Database
) -> None:
    """It says how many points stand for how many values; so does REST."""
    job_id = _measure(db, 5000)

    drawing = client.get(f"/jobs/{job_id}/charts/kl.json").json()
    rest = client.get(f"/api/v1/jobs/{job_id}/metrics?series=pool/score&points=1000").json()

    assert drawing["said"].startswith("626 of 5000 points: each stands for 8 steps")
    assert len(drawing["lines"][0]["low"]) == 626
    assert rest["pool/score"]["n"] == 5000
    assert rest["pool/score"]["points"][0] == [7, 1 / 5000, 7 / 5000, 7 / 5000]


@pytest.mark.requirement("EX-07")
def test_sources_and_forms_have_charts_where_a_run_has_them(
    client: TestClient, db: Database
) -> None:
    """A pool score and held-out rows of each source; forms among right and wrong answers."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        values = {"pool/score/gsm8k": 0.4, "pool/score/math": 0.6}
        forms = {"format/boxed": 0.25, "format/boxed/right": 0.75}
        attempt.write("metric", step=1, values=values | forms)
        attempt.finish()

    text = words(client.get("/jobs/1").text)
    sources = client.get("/jobs/1/charts/sources.json").json()

    assert "Pool and held-out success by source" in text
    assert "Forms of answers in the pool" in text
    assert "Forms of right answers in the pool" in text
    assert "Forms of wrong answers in the pool" not in text
    assert [line["label"] for line in sources["lines"]] == ["gsm8k, pool", "math, pool"]
    assert "gsm8k, pool" in words(client.get("/jobs/1/charts/sources").text)


@pytest.mark.requirement("EX-22")
def test_benches_are_drawn_by_what_people_call_them(
    client: TestClient, db: Database, tmp_path: Path
) -> None:
    """With their shots, beside each other."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Is 3 odd?", "answer": "1"}\n', "utf-8")
    cot = {"name": "cot", "source": str(rows), "template": "gsm8k_cot", "shots": 8}
    plain = {"name": "plain", "source": str(rows)}
    reads = {"base": "some/model", "data": {"source": str(rows)}, "corpus_min": 1}
    enqueue(db, "rl_run", CONFIG | reads | {"heldout": [cot, plain]}, actor="test")
    with night(db) as lane:
        attempt = lane.start()
        for split in ("cot", "plain"):
            attempt.write(
                "gate", step=1, split=split, score=0.5, n=1, ci95=[0.1, 0.9], temp=0.2,
                selected=False,
            )  # fmt: skip
        attempt.finish()

    text = words(client.get("/jobs/1").text)
    drawn = client.get("/jobs/1/charts/benches.json").json()

    assert "Held-out benches" in text
    assert [line["label"] for line in drawn["lines"]] == ["cot (8-shot)", "plain"]


@pytest.mark.requirement("UI-02")
def test_series_are_found_by_words_in_their_names(client: TestClient, db: Database) -> None:
    """The rest of what was recorded, behind a search; a name that nobody recorded leads back."""
    job_id = _measure(db, 3)

    text = words(client.get(f"/jobs/{job_id}?find=roll tok").text)
    none = words(client.get(f"/jobs/{job_id}?find=nothing").text)

    assert "1 of 7 panels and series" in text
    assert "rollout/tokens 10 at step 3, 3 values" in text
    assert "No panel and no series has such a name. Show all 7" in none


@pytest.mark.parametrize(
    "query", ["tab=nope", "smooth=1", "smooth=9", "from=-1", "axis=x", "find=%00", "at=-1"]
)
def test_an_address_that_names_nothing_is_explained(
    client: TestClient, db: Database, query: str
) -> None:
    """One clear answer, no page with half of it."""
    queue(db)
    assert client.get(f"/jobs/1?{query}").status_code == 422


def test_the_samples_tab_is_the_samples_page(client: TestClient, db: Database) -> None:
    """One address for one thing."""
    queue(db)
    answer = client.get("/jobs/1?tab=samples", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/1/samples")


def test_pages_travel_compressed_and_hashed_files_are_kept(client: TestClient) -> None:
    """A file asked for by its hash never changes; one without is asked for again."""
    page = client.get("/")
    address = page.text.partition('href="/static/cockpit.css')[2].partition('"')[0]

    assert page.headers["content-encoding"] == "gzip"
    assert "immutable" in client.get(f"/static/cockpit.css{address}").headers["cache-control"]
    assert client.get("/static/cockpit.css").headers["cache-control"] == "no-cache"
    assert client.get("/static/nothing.css?x").headers["cache-control"] == "no-store"


def test_the_memory_tab_lists_the_phases_as_a_run_meets_them(
    client: TestClient, db: Database
) -> None:
    """Not as they are spelt; one of another version stands in front."""
    queue(db)
    used = {"heldout-gate": 3.0, "lane-bringup": 1.0, "of-old": 0.5, "training": 2.0}
    with night(db) as lane:
        lane.start().write("finished", status="done", result={"mem_trace": {"phase_used_gb": used}})

    text = words(client.get("/jobs/1?tab=memory").text)

    assert "of-old 0.5 GB lane-bringup 1.0 GB training 2.0 GB heldout-gate 3.0 GB" in text


@pytest.mark.parametrize("tab", ["charts", "log", "memory", "config", "events", "repro"])
def test_a_pruned_run_says_on_every_tab_who_pruned_it_and_what_went(
    client: TestClient, db: Database, tab: str
) -> None:
    """Until then none does; the report's numbers stand there as ever."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        attempt.finish()
    assert "Pruned" not in words(client.get(f"/jobs/{job_id}?tab={tab}").text)

    prune_one(db, job_id, actor="cli:asker")

    text = words(client.get(f"/jobs/{job_id}?tab={tab}").text)
    assert "by cli:asker: checkpoints, samples and every metric but the held-out ones" in text
    if tab == "charts":
        assert "25.8 points more held-out rows" in text
    if tab == "events":
        assert "pruned: 0 files, 0.0 MB thrown away" in text


def test_the_tables_of_a_pruned_run_say_that_the_values_are_gone(
    client: TestClient, db: Database
) -> None:
    """Not that they are still to come."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(1, 0.5)
        attempt.finish()
    prune_one(db, job_id, actor="test")

    text = words(client.get(f"/jobs/{job_id}/series?name=train/loss").text)

    assert "No values any more: they were thrown away when the run was pruned" in text
    assert "No values yet" not in text


def test_a_job_pruned_before_prunes_were_audited_says_so_without_a_name(
    client: TestClient, db: Database
) -> None:
    """Nobody is named whom nothing names."""
    job_id = queue(db)
    with night(db) as lane:
        lane.start().finish()
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == job_id).values(pruned_at=1.0))

    day = datetime.date.fromtimestamp(1.0)  # noqa: DTZ012 - of this machine's zone, the lane's here
    assert f"Pruned {day}" in words(client.get(f"/jobs/{job_id}").text)
