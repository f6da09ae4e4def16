"""The reader of answers and its REST: what a run wrote, whole groups, nothing of it markup."""

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


@pytest.mark.requirement("UI-08", "UI-14")
def test_an_answer_stands_among_its_group_with_advantages(client: TestClient, run: RunDir) -> None:
    """All answers to its prompt, each with what was read from it and what it was worth."""
    rows = [
        row("1+1", 0, "2", 1.0, advantage=1.5),
        row("1+1", 1, "3", 0.0, advantage=-1.5),
        row("2+2", 0, "5", 0.0, advantage=0.0),
        row("2+2", 1, "5", 0.0, advantage=0.0),
    ]
    write(run, "train-000003", rows)

    text = words(client.get("/jobs/1/samples").text)
    tied = words(client.get("/jobs/1/samples?row=3").text)

    assert "All 4 Right 1 Wrong 3 Cut off 0 Unread 0 No signal 1" in text
    assert "✓ Right 1 2 +1.50 ✕ Wrong 2 3 −1.50" in text
    assert "1 of 2 right, mean reward 0.50." in text
    assert "0 of 2 right, mean reward 0.00. All got the same reward: nothing to rank" in tied


@pytest.mark.requirement("UI-14")
def test_each_verifier_says_what_it_gave_and_why(client: TestClient, run: RunDir) -> None:
    """One verifier with its reason, what it read and the reference; several with a sum."""
    parts = {"accuracy": 1.0, "judge": None}
    several = row("several", reward=0.8, parts=parts, reason="correct")
    write(
        run, "train-000003", [row("one", text="It is 8", answer="8", reward=0.0, gold="7"), several]
    )

    one = words(client.get("/jobs/1/samples?row=0").text)
    both = words(client.get("/jobs/1/samples?row=1").text)

    assert "✕ Wrong row 0, sample 0 one exact 0 Not equal to the reference." in one
    assert "read as 8 reference 7" in one
    assert "accuracy 1 judge – reward 0.8 correct" in both


@pytest.mark.requirement("UI-08", "UI-14")
def test_the_address_says_what_is_shown(client: TestClient, run: RunDir) -> None:
    """Split, step, conditions and the answer: every link carries them on."""
    for step in (1, 2, 4):
        write(run, f"train-{step:06d}", [row(f"at {step}"), row("cut", truncated=True)])

    text = client.get("/jobs/1/samples?split=pool&step=2&truncated=true").text

    assert "cut=" in text
    assert "at 2=" not in text
    assert "1 of 2 meet the conditions" in words(text)
    assert 'href="/jobs/1/samples?split=pool&amp;step=2&amp;truncated=true&amp;row=1"' in text
    assert 'rel="prev" href="/jobs/1/samples?split=pool&amp;step=1&amp;truncated=true"' in text
    assert 'rel="next" href="/jobs/1/samples?split=pool&amp;step=4&amp;truncated=true"' in text
    assert 'href="/jobs/1/samples?split=pool&amp;step=2&amp;row=1" data-copy-link' in text


@pytest.mark.requirement("UI-14")
def test_a_link_to_one_answer_opens_the_page_of_the_list_that_holds_it(
    client: TestClient, run: RunDir
) -> None:
    """However far down it stands, with those before and after it."""
    write(run, "train-000001", [row(f"q{i}", text=f"said {i}.") for i in range(120)])

    text = client.get("/jobs/1/samples?split=pool&step=1&row=77").text

    assert "said 77." in text
    assert 'href="/jobs/1/samples?split=pool&amp;step=1&amp;row=77" data-open aria-current' in text
    assert 'rel="prev" data-open href="/jobs/1/samples?split=pool&amp;step=1&amp;row=49"' in text
    assert 'rel="next" data-open href="/jobs/1/samples?split=pool&amp;step=1&amp;after=99"' in text


@pytest.mark.requirement("UI-14")
def test_right_and_wrong_cut_off_and_unread_answers_are_one_click_away(
    client: TestClient, run: RunDir
) -> None:
    """Of held-out rows also those that changed sides since step 0."""
    before = [row("a", success=False, reward=0.0), row("b", success=True), row("c", success=True)]
    now = [
        row("a", success=True),
        row("b", success=False, reward=0.0, truncated=True),
        row("c", success=False, reward=0.0, reason="unparsed"),
    ]
    write(run, "heldout-select-000000", before)
    write(run, "heldout-select-000010", now)

    text = client.get("/jobs/1/samples?split=select").text

    assert (
        "All 3 Right 1 Wrong 2 Cut off 1 Unread 1 Flipped to right 1 Flipped to wrong 2"
        in words(text)
    )
    for query in ("right=true", "right=false", "truncated=true", "unparsed=true", "changed=lost"):
        assert f"split=select&amp;step=10&amp;{query}" in text
        assert client.get(f"/jobs/1/samples?split=select&step=10&{query}").status_code == 200


@pytest.mark.requirement("UI-08")
def test_what_a_form_leaves_empty_is_no_condition(client: TestClient, run: RunDir) -> None:
    """A browser sends every field of a form."""
    write(run, "train-000001", [row("a"), row("b", reward=0.0)])

    text = words(client.get("/jobs/1/samples?split=pool&step=1&low=&high=&reason=&q=").text)

    assert "2 of 2 listed" in text


@pytest.mark.requirement("UI-14")
def test_an_answer_is_held_against_the_same_prompt_at_another_step_and_in_another_run(
    client: TestClient, db: Database, run: RunDir
) -> None:
    """Which words each has alone; a run or step that has none says so."""
    write(run, "heldout-select-000000", [row("a", text="It is 41.", success=False)])
    write(run, "heldout-select-000010", [row("a", text="It is 42.", success=True)])
    queue(db, lr=0.5)
    other = RunDir(db.settings.runs_dir / "2")
    write(other, "heldout-select-000010", [row("a", text="It was 42.", success=True)])
    here = "/jobs/1/samples?split=select&step=10&row=0&view=diff"

    steps = client.get(f"{here}&at=0").text
    runs = client.get(f"{here}&other=2").text

    assert "step 0 1 of 1 right" not in words(steps)
    assert "step 0 0 of 1 right step 10 1 of 1 right" in words(steps)
    assert "<del>41</del>" in steps
    assert "<ins>42</ins>" in steps
    assert "<del>was</del>" in runs
    assert "<ins>is</ins>" in runs
    assert "job 1 has no select answers at step 5; it has: 0, 10" in client.get(f"{here}&at=5").text


@pytest.mark.requirement("UI-14")
def test_a_prompt_of_the_same_name_that_asks_something_else_is_not_held_against_it(
    client: TestClient, run: RunDir
) -> None:
    """Two corpora may call different questions the same."""
    write(run, "heldout-select-000000", [row("a", prompt="1+1=")])
    write(run, "heldout-select-000010", [row("a", prompt="6*7=")])

    text = client.get("/jobs/1/samples?split=select&step=10&view=diff&at=0").text

    assert "job 1 was not asked this at step 0, or something else under its name" in text


@pytest.mark.requirement("UI-08", "UI-14")
def test_hostile_answers_are_text_and_hidden_characters_are_seen(
    client: TestClient, run: RunDir
) -> None:
    """Markup is escaped in every view; the raw text shows also line ends, tabs and last blanks."""
    evil = "<script>alert(1)</script>\t\u202eabc \x1b[31m\n"
    write(run, "heldout-select-000000", [row("<b>q</b>", text=evil, success=False, answer=evil)])
    here = "/jobs/1/samples?split=select&step=0"

    read, raw, diff = (client.get(f"{here}&view={view}").text for view in ("text", "raw", "diff"))

    for text in (read, raw, diff):
        assert "<script>alert" not in text
        assert "<b>q" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert 'title="character U+202E"' in text
    for meaning in ("tab", "character U+001B", "line end"):
        assert f'title="{meaning}"' in raw


@pytest.mark.requirement("UI-08", "UI-14")
def test_an_answer_of_a_megabyte_is_folded_and_kept_whole(client: TestClient, run: RunDir) -> None:
    """The page shows its ends and says what it leaves out; the whole text has its address."""
    whole = "a" * 500_000 + "<i>" + "z" * 500_000
    write(run, "train-000001", [row("long", text=whole, answer=None)])

    page = client.get("/jobs/1/samples")
    text = client.get("/jobs/1/samples/pool/1/0")

    assert len(page.content) < 120_000
    assert "1,000,003 characters: too long to be read as Markdown" in page.text
    assert "940003 of 1000003 characters are left out" in page.text
    assert 'href="/jobs/1/samples/pool/1/0"' in page.text
    assert text.text == whole
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["x-content-type-options"] == "nosniff"
    assert client.get("/jobs/1/samples/pool/1/1").status_code == 404


@pytest.mark.requirement("UI-14")
def test_an_answer_of_ten_thousand_characters_is_shown_whole(
    client: TestClient, run: RunDir
) -> None:
    """Read and raw: nothing is left out of it."""
    whole = "\n\n".join(f"Paragraph {i} says **{i}**." for i in range(400))
    write(run, "train-000001", [row("long", text=whole)])

    read, raw = (client.get(f"/jobs/1/samples?view={view}").text for view in ("text", "raw"))

    assert len(whole) > 10_000
    assert read.count("<strong>") >= 400
    assert "Paragraph 399 says **399**." in raw
    assert "are left out" not in read + raw


@pytest.mark.requirement("UI-14")
def test_a_long_prompt_is_folded_and_a_short_one_is_not(client: TestClient, run: RunDir) -> None:
    """It is above every answer to it."""
    write(run, "train-000001", [row("a"), row("b", prompt="word " * 500)])

    assert '<details class="prompt" open>' in client.get("/jobs/1/samples?row=0").text
    assert '<details class="prompt">' in client.get("/jobs/1/samples?row=1").text


@pytest.mark.requirement("UI-08")
def test_one_held_out_prompt_is_shown_over_the_steps(client: TestClient, run: RunDir) -> None:
    """From each answer there is a link to it."""
    for step, said in ((0, "41"), (10, "42")):
        write(run, f"heldout-select-{step:06d}", [row("6*7&", text=said)])

    link = "/jobs/1/samples/history?split=select&amp;id=6%2A7%26"
    assert link in client.get("/jobs/1/samples?split=select").text
    text = words(client.get(link.replace("&amp;", "&")).text)

    assert "2 of 2 steps looked at" in text
    assert "0 41 41 1 correct" in text
    assert "10 42 42 1 correct" in text


@pytest.mark.requirement("UI-08", "UI-14")
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
    assert "✕ False and missed row 0 t 1 F1 of boxes 0.5 1 matched, 1 false, 1 missed" in words(
        text
    )


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
    assert "✓ Right row 0 empty F1 of boxes 1 0 matched, 0 false, 0 missed" in shown


@pytest.mark.requirement("UI-08")
def test_as_many_reasons_as_rows_fill_no_page(client: TestClient, run: RunDir) -> None:
    """A verifier may say what it expected: a filter offers the most frequent."""
    rows = [row(f"q{i}", reason=f"expected {i}") for i in range(200)]
    write(run, "train-000004", [*rows, row("twice", reason="expected 7")])

    page = client.get("/jobs/1/samples").text

    assert '<option value="expected 7">expected 7 (2)</option>' in page
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

    assert "All 0" in text
    assert "This step has no answer of this split." in text
    assert " . " not in text


def test_a_filter_that_keeps_nothing_says_so(client: TestClient, run: RunDir) -> None:
    """And how to see all again."""
    write(run, "train-000001", [row("a")])

    text = client.get("/jobs/1/samples?low=2").text

    assert "No answer meets these conditions" in text
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
