"""The samples page and its REST: what a run wrote, whole groups, nothing of it markup."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.pages.test_pages import words
from tests.app.rollouts import picture_row, row, write
from worker.db.connection import Database
from worker.db.tables import job

HTML = {"accept": "text/html"}


@pytest.fixture
def run(db: Database) -> Iterator[RunDir]:
    """Job 1, running, without a rollout yet."""
    queue(db, name="tonight")
    with night(db) as lane:
        yield lane.start().run


@pytest.mark.requirement("UI-08")
def test_a_group_stands_together_with_advantages_and_reasons(
    client: TestClient, run: RunDir
) -> None:
    """All completions of a prompt, each with what it earned, why, and what it was worth."""
    rows = [
        row("1+1", 0, "2", 1.0, advantage=1.5),
        row("1+1", 1, "3", 0.0, advantage=-1.5),
        row("2+2", 0, "5", 0.0, advantage=0.0),
        row("2+2", 1, "5", 0.0, advantage=0.0),
    ]
    write(run, "train-000003", rows)

    text = words(client.get("/jobs/1/samples").text)

    assert "4 completions of 2 prompts" in text
    assert "3 wrong, 1 correct. 0 truncated. 1 of 2 prompts gave nothing to rank" in text
    assert "0 2 1 +1.50 correct 2" in text
    assert "1 3 0 −1.50 wrong 3" in text
    assert "2+2= zero variance 2 of 2 shown" in text


@pytest.mark.requirement("UI-08")
def test_the_address_says_what_is_shown(client: TestClient, run: RunDir) -> None:
    """Split, step and conditions come back in the form and in every link."""
    for step in (1, 2, 4):
        write(run, f"train-{step:06d}", [row(f"at {step}"), row("cut", truncated=True)])

    text = client.get("/jobs/1/samples?split=pool&step=2&truncated=true").text

    assert "cut=" in text
    assert "at 2=" not in text
    assert "1 of 2 meet the conditions" in words(text)
    assert 'name="truncated" value="true" checked' in text
    assert 'rel="prev" href="/jobs/1/samples?split=pool&amp;step=1&amp;truncated=true"' in text
    assert 'rel="next" href="/jobs/1/samples?split=pool&amp;step=4&amp;truncated=true"' in text


@pytest.mark.requirement("UI-08")
def test_what_a_form_leaves_empty_is_no_condition(client: TestClient, run: RunDir) -> None:
    """A browser sends every field of a form."""
    write(run, "train-000001", [row("a"), row("b", reward=0.0)])

    text = words(client.get("/jobs/1/samples?split=pool&step=1&low=&high=&reason=&q=").text)

    assert "2 of 2 shown" in text


@pytest.mark.requirement("UI-08")
def test_hostile_completions_are_text_and_hidden_characters_are_seen(
    client: TestClient, run: RunDir
) -> None:
    """Markup is escaped; line ends, tabs, blanks at the end and direction marks become visible."""
    evil = "<script>alert(1)</script>\t\u202eabc \x1b[31m\n"
    write(run, "heldout-select-000000", [row("<b>q</b>", text=evil, success=False)])

    text = client.get("/jobs/1/samples").text

    assert "<script>alert" not in text
    assert "<b>q" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    for meaning in ("tab", "character U+202E", "character U+001B", "line end"):
        assert f'title="{meaning}"' in text


@pytest.mark.requirement("UI-08")
def test_a_completion_of_a_megabyte_is_folded_and_kept_whole(
    client: TestClient, run: RunDir
) -> None:
    """The page shows its ends and says what it leaves out; the whole text has its address."""
    whole = "a" * 500_000 + "<i>" + "z" * 500_000
    write(run, "train-000001", [row("long", text=whole, answer=None)])

    page = client.get("/jobs/1/samples")
    text = client.get("/jobs/1/samples/pool/1/0")

    assert len(page.content) < 50_000
    assert "998003 of 1000003 characters are left out" in page.text
    assert 'href="/jobs/1/samples/pool/1/0"' in page.text
    assert text.text == whole
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["x-content-type-options"] == "nosniff"
    assert client.get("/jobs/1/samples/pool/1/1").status_code == 404


@pytest.mark.requirement("UI-08")
def test_one_held_out_prompt_is_shown_over_the_steps(client: TestClient, run: RunDir) -> None:
    """From each row there is a link to it."""
    for step, said in ((0, "41"), (10, "42")):
        write(run, f"heldout-select-{step:06d}", [row("6*7&", text=said)])

    link = "/jobs/1/samples/history?split=select&amp;id=6%2A7%26"
    assert link in client.get("/jobs/1/samples?split=select").text
    text = words(client.get(link.replace("&amp;", "&")).text)

    assert "2 of 2 steps looked at" in text
    assert "0 41 41 1 correct" in text
    assert "10 42 42 1 correct" in text


@pytest.mark.requirement("UI-08")
def test_boxes_tell_hit_and_miss_by_line_and_label(client: TestClient, run: RunDir) -> None:
    """Ground truth and prediction, matched, false and missed: each has a kind and a word."""
    spans = {
        "answer": [],
        "b2": None,
        "b3": [
            {"text": "cat", "tokens": 2, "part": "desc", "source": "FN", "entry": 0, "weight": 0.2}
        ],
    }
    picture = {"name": "0" * 20 + ".jpg", "width": 200, "height": 100}
    write(run, "train-000004", [picture_row("t 1", 1, 2, 2, picture=picture, spans=spans)])

    text = client.get("/jobs/1/samples").text

    assert 'viewBox="0 0 1000 500.0"' in text
    assert f'href="/jobs/1/samples/pictures/{"0" * 20}.jpg"' in text
    for kind in ("truth", "missed", "matched", "false"):
        assert f'<g class="box" data-kind="{kind}">' in text
    assert 'aria-label="1 of 2 objects found, 1 false positives"' in text
    assert ">missed 2<" in text
    assert ">= 1<" in text
    assert ">FP<" in text
    assert "cat FN desc ×0.2" in words(text)


@pytest.mark.requirement("UI-08")
@pytest.mark.parametrize("odd", [10**99, -(10**99), 1e308, 10**30, "text", [], -1])
def test_numbers_beyond_reason_hide_no_completion(
    client: TestClient, run: RunDir, odd: object
) -> None:
    """A reward, a step's version, the sides of a picture, a weight that nobody can reckon with."""
    picture = {"name": "0" * 20 + ".jpg", "width": odd, "height": odd}
    spans = {"b2": [{"text": "cat", "tokens": odd, "part": "desc", "entry": odd, "weight": odd}]}
    boxed = picture_row("t 1", 1, 2, 2, picture=picture, spans=spans)
    plain = row("kept") | {"reward": odd, "advantage": odd, "version": odd, "sample": odd}
    write(run, "train-000004", [boxed, plain | {"logprobs": [odd]}])

    answer = client.get("/jobs/1/samples")

    assert answer.status_code == 200
    assert "kept" in answer.text
    assert client.get("/api/v1/jobs/1/samples").status_code == 200


@pytest.mark.requirement("UI-08")
def test_an_upright_picture_is_drawn_narrower_than_it_would_be_tall(
    client: TestClient, run: RunDir
) -> None:
    """A strip of 30 × 4,000 pixels: its boxes keep their places on it, and a page its length."""
    picture = {"name": "0" * 20 + ".jpg", "width": 30, "height": 4000}
    write(run, "train-000004", [picture_row("t 1", 1, 1, 1, picture=picture)])

    text = client.get("/jobs/1/samples").text

    assert 'viewBox="0 0 15.0 2000.0"' in text
    # 0 100 90 300 in thousandths of 15 × 2,000
    assert '<rect class="edge" x="0.0" y="200.0" width="1.3" height="400.0"/>' in text


@pytest.mark.requirement("UI-08")
def test_nothing_said_of_a_picture_that_shows_nothing_is_right(
    client: TestClient, run: RunDir
) -> None:
    """Its F1 is no zero that a filter leaves out; what was dropped or cannot be read has one."""
    rows = [
        picture_row("empty", 0, 0, 0),
        picture_row("garbled", 0, 0, 0, invalid=True),
        picture_row("dropped", 0, 0, 0, dropped={"degenerate": 1}),
    ]
    write(run, "train-000004", rows)

    shown = words(client.get("/jobs/1/samples?low=0.5").text)

    assert "1 of 3 meet the conditions" in shown
    assert "empty all found 0 matched, 0 false, 0 missed , F1 1" in shown


@pytest.mark.requirement("UI-08")
def test_as_many_reasons_as_rows_fill_no_page(client: TestClient, run: RunDir) -> None:
    """A verifier may say what it expected: the most frequent stand there, others as a number."""
    rows = [row(f"q{i}", reason=f"expected {i}") for i in range(200)]
    write(run, "train-000004", [*rows, row("twice", reason="expected 7")])

    page = client.get("/jobs/1/samples").text

    assert "2 expected 7, 1 expected 0, " in words(page)
    assert "192 for 192 other reasons. 0 truncated." in words(page)
    assert page.count("<option") == 101


@pytest.mark.requirement("UI-08")
def test_a_picture_is_served_from_the_run_directory_alone(client: TestClient, run: RunDir) -> None:
    """By its own name; a path or a link to elsewhere names nothing."""
    folder = run.rollouts / "pictures"
    folder.mkdir(parents=True)
    (folder / ("a" * 20 + ".jpg")).write_bytes(b"jpeg")
    (folder / ("b" * 20 + ".jpg")).symlink_to("/etc/passwd")
    base = "/jobs/1/samples/pictures"

    answer = client.get(f"{base}/{'a' * 20}.jpg")

    assert (answer.content, answer.headers["content-type"]) == (b"jpeg", "image/jpeg")
    for name in ("b" * 20 + ".jpg", "..%2f..%2fevents.jsonl", "%2e%2e", "c" * 20 + ".jpg"):
        assert client.get(f"{base}/{name}").status_code == 404


@pytest.mark.requirement("UI-08")
def test_a_run_without_completions_says_why_and_what_comes_next(
    client: TestClient, db: Database
) -> None:
    """Queued, started, pruned: three reasons, three next steps."""
    queue(db)
    assert "cockpit drain" in client.get("/jobs/1/samples").text
    with night(db) as lane:
        lane.start().finish()
    assert "cockpit logs 1" in client.get("/jobs/1/samples").text
    with db.write_tx() as conn:
        conn.execute(job.update().values(pruned_at=1.0))

    assert "cockpit retry 1 --fresh" in client.get("/jobs/1/samples").text


def test_a_wrong_condition_is_named_with_its_value(client: TestClient, run: RunDir) -> None:
    """As every page says it."""
    write(run, "train-000003", [row("1+1", 0, "2", 1.0)])

    answer = client.get("/jobs/1/samples?step=abc")

    assert answer.status_code == 422
    assert [found["value"] for found in answer.json()["problems"]] == ["abc"]


def test_a_step_without_a_completion_says_so_of_itself(
    client: TestClient, db: Database, run: RunDir
) -> None:
    """Not that there is none yet, of a run that is over; and no sentence is left without words."""
    write(run, "train-000003", [])
    with db.write_tx() as conn:
        conn.execute(job.update().values(state="succeeded"))

    text = words(client.get("/jobs/1/samples").text)

    assert "0 completions This step has no completion of this split." in text
    assert " . " not in text


def test_a_filter_that_keeps_nothing_says_so(client: TestClient, run: RunDir) -> None:
    """And how to see all again."""
    write(run, "train-000001", [row("a")])

    text = client.get("/jobs/1/samples?low=2").text

    assert "No completion meets these conditions" in text
    assert 'href="/jobs/1/samples?split=pool&amp;step=1"' in text


@pytest.mark.requirement("UI-08")
def test_rest_takes_the_same_filters(client: TestClient, run: RunDir) -> None:
    """The page and its twin for programs ask the same question."""
    write(run, "train-000001", [row("a"), row("b", reward=0.0)])
    write(run, "heldout-select-000000", [row("a", text="first")])

    found = client.get("/api/v1/jobs/1/samples?reason=wrong&split=pool").json()
    history = client.get("/api/v1/jobs/1/samples/history?id=a").json()

    assert [(one["id"], one["logprobs"]) for one in found["samples"]] == [("b", [-0.5, -0.1])]
    assert (found["matched"], found["total"], found["next_after"]) == (1, 2, None)
    assert found["splits"] == {"pool": [1], "select": [0]}
    assert [(one["step"], one["text"]) for one in history["samples"]] == [(0, "first")]


@pytest.mark.parametrize("query", ["low=x", "step=-1", "split=train", "limit=1000", "spilt=pool"])
def test_a_wrong_condition_is_named(client: TestClient, run: RunDir, query: str) -> None:
    """By the page in words, by REST as a problem; a misspelt name is no silent nothing."""
    answer = client.get(f"/api/v1/jobs/1/samples?{query}")
    page = client.get(f"/jobs/1/samples?{query}", headers=HTML)

    name = query.partition("=")[0]
    assert answer.status_code == page.status_code == 422
    assert name in answer.json()["detail"]
    assert name in page.text


def test_an_unknown_job_has_no_samples(client: TestClient) -> None:
    """Neither page nor REST."""
    for address in ("/jobs/9/samples", "/jobs/9/samples/history?id=a", "/api/v1/jobs/9/samples"):
        assert client.get(address).status_code == 404
