"""Comparison: paired where the rows are the same, honest where not, cause beside effect."""

from __future__ import annotations

import html
import json
import random
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from engine.contract.intervals import compare, independent
from engine.evaluate.pooled_f1 import lift_interval
from tests.app.conftest import Said
from tests.app.night import CONFIG, night, queue
from tests.app.pages.test_pages import words
from tests.app.rollouts import heldout, picture_row, row, write
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue import sweeps
from worker.queue.submission import submission
from worker.read import jobs
from worker.read.comparison.compare import CompareError, Which, compare_jobs, find_rows
from worker.read.comparison.difference import Difference, holm

Rows = Sequence[dict[str, Any]]
Cockpit = Callable[..., Said]


def ran(
    db: Database, report: Rows, base: Rows | None = None, *, split: str = "report", **config: Any
) -> int:
    """One finished run: held-out rows at step 0 and at the picked step 30."""
    job_id = queue(db, **config)
    with night(db) as lane:
        attempt = lane.start()
        write(attempt.run, f"heldout-{split}-000000", base if base is not None else report)
        write(attempt.run, f"heldout-{split}-000030", report)
        attempt.gate(0, 0.5)
        attempt.step(1, 0.5)
        attempt.finish()
    return job_id


def against(db: Database, *job_ids: int) -> list[Difference]:
    """The differences to the first, at the picked step."""
    found = compare_jobs(db, job_ids).against
    return [one.picked for one in found if one.picked is not None]


WEAK = [i < 20 for i in range(60)]
STRONG = [i < 50 for i in range(60)]


@pytest.mark.requirement("UI-03")
def test_two_runs_are_compared_row_by_row_by_the_engines_own_definition(db: Database) -> None:
    """Pairing, interval and exact test are those of a run's verdict."""
    flipped = [*STRONG]
    flipped[0] = False
    ran(db, heldout(WEAK))
    ran(db, heldout(flipped)[::-1])  # the order of the rows is not their identity

    (one,) = against(db, 1, 2)

    expected = compare(WEAK, flipped)
    assert (one.paired, one.n, one.gained, one.lost) == (True, 60, 30, 1)
    assert (one.lift, one.low, one.high) == (expected.lift, *expected.ci95)
    assert one.p_value == expected.p_value
    assert one.word == "better"


@pytest.mark.requirement("UI-03")
def test_rows_that_are_not_the_same_are_never_paired(db: Database) -> None:
    """Other rows: the wider interval of different rows, no test, and no verdict."""
    ran(db, heldout(WEAK))
    ran(db, heldout(STRONG, first=1000))

    (one,) = against(db, 1, 2)

    assert (one.paired, one.p_value, one.word) == (False, None, "not the same rows")
    assert (one.only_a, one.only_b) == (60, 60)
    assert (one.low, one.high) == independent(20, 60, 50, 60)


def test_runs_without_a_row_in_common_are_told_how_to_have_some(
    client: TestClient, cockpit: Callable[..., Said], db: Database
) -> None:
    """On the page and on the command line."""
    ran(db, heldout(WEAK))
    ran(db, heldout(STRONG, first=1000))

    said = cockpit("compare", "1", "2").out

    assert "share theirs where data.split_seed is the same" in said
    assert "<code>data.split_seed</code> is the same" in client.get("/compare?job=1&job=2").text


@pytest.mark.requirement("UI-03")
def test_only_shared_rows_are_paired_and_the_rest_is_counted(db: Database) -> None:
    """The same id with another question is another row."""
    ran(db, heldout(WEAK))
    other = heldout(STRONG)[10:] + heldout([True] * 5, first=500)
    other[0]["prompt"] = "something else"
    ran(db, other)

    (one,) = against(db, 1, 2)

    assert (one.n, one.only_a, one.only_b, one.changed) == (49, 10, 5, 1)


@pytest.mark.requirement("UI-03")
def test_rows_of_an_older_engine_are_known_by_their_prompts_token_ids(db: Database) -> None:
    """They bear no text of the prompt."""
    rows = [heldout([True] * 40), heldout([False] * 40)]
    for one in rows:
        for each in one:
            del each["prompt"]
    rows[1][7]["prompt_ids"] = [9, 9]
    for one in rows:
        ran(db, one)

    (found,) = against(db, 1, 2)

    assert (found.n, found.changed) == (39, 1)


@pytest.mark.requirement("UI-03")
def test_several_runs_are_corrected_for_one_another(db: Database) -> None:
    """Holm: the more runs are held against one, the more each has to show."""
    base, slightly = [False] * 60, [i < 6 for i in range(60)]  # p = 2 / 2^6
    ran(db, heldout(base))
    for _ in range(3):
        ran(db, heldout(slightly))

    assert against(db, 1, 2)[0].word == "better"
    several = against(db, 1, 2, 3, 4)

    assert [one.p_holm for one in several] == pytest.approx([3 * 0.03125] * 3)
    assert {one.word for one in several} == {"no difference proven"}
    assert holm([0.5, 0.01, 0.04]) == pytest.approx([0.5, 0.03, 0.08])


def test_few_rows_carry_no_verdict(db: Database) -> None:
    """The same bound as a run's own verdict has by default."""
    ran(db, heldout([False] * 20))
    ran(db, heldout([True] * 20))

    assert against(db, 1, 2)[0].word == "too few rows"


def test_runs_that_began_apart_say_so(client: TestClient, db: Database) -> None:
    """A difference that stood before training is not the training's."""
    ran(db, heldout(WEAK), base=heldout(WEAK))
    ran(db, heldout(STRONG), base=heldout(STRONG))

    assert "they began apart" in client.get("/compare?job=1&job=2").text


@pytest.mark.requirement("UI-03")
def test_select_rows_stand_in_with_a_caution(client: TestClient, db: Database) -> None:
    """They picked the checkpoints, so they flatter; better than nothing, if it is said."""
    ran(db, heldout(WEAK), split="select")
    ran(db, heldout(STRONG), split="select")

    text = client.get("/compare?a=1&b=2").text

    assert "each score is a little too good" in text
    assert "better" in words(text)


def test_what_changes_the_meaning_of_a_score_is_a_caution(db: Database) -> None:
    """Two verifiers count different things."""
    ran(db, heldout(WEAK), verifier="exact")
    ran(db, heldout(STRONG), verifier="gsm8k")

    assert compare_jobs(db, [1, 2]).cautions == [
        "The runs were judged by different verifiers: exact and gsm8k."
    ]


@pytest.mark.requirement("UI-03")
def test_the_settings_that_differ_stand_out_and_the_rest_is_folded(
    client: TestClient, db: Database
) -> None:
    """What caused it: the one setting in which they differ."""
    ran(db, heldout(WEAK), lr=1e-3, warmup={"target_heldout": 0.5})
    ran(db, heldout(STRONG), lr=1e-3, warmup={"target_heldout": 0.6})

    rows = {one.name: one for one in compare_jobs(db, [1, 2]).settings}
    text = client.get("/compare?job=1&job=2").text

    assert [name for name, one in rows.items() if one.differs] == ["warmup.target_heldout"]
    assert rows["lr"].values == [1e-3, 1e-3]
    head, _, folded = text.partition("settings are the same</summary>")
    assert "warmup.target_heldout" in head
    assert '<th scope="row">lr</th>' not in head
    assert '<th scope="row">lr</th>' in folded


@pytest.mark.requirement("UI-03")
def test_rows_are_listed_by_who_solved_them_with_what_both_wrote(
    client: TestClient, db: Database
) -> None:
    """The win and loss list, a page at a time."""
    ran(db, heldout([True] * 20 + [False] * 20))
    ran(db, heldout([False] * 15 + [True] * 25))

    pages = [find_rows(db, 1, 2, Which.LOST, after=after, limit=10) for after in (-1, 9)]
    text = words(client.get("/compare?job=1&job=2&rows=gained").text)

    assert [one.id for page in pages for one in page.rows] == [f"q{i}" for i in range(15)]
    assert (pages[0].total, pages[0].next_after, pages[1].next_after) == (15, 9, None)
    assert {(one.first.text, one.second.text) for one in pages[0].rows} == {("right", "wrong")}
    assert "only the second solved 20" in text
    assert "q20= #1 wrong wrong #2 correct right" in text
    totals = [find_rows(db, 1, 2, which).total for which in Which]
    assert totals == [20, 15, 0, 5]


@pytest.mark.requirement("UI-03")
def test_detection_is_compared_by_f1_over_the_same_pictures(db: Database) -> None:
    """The interval is the engine's bootstrap over pictures; other boxes are another picture."""
    draw = random.Random(3)
    counts = []
    for chance in (0.3, 0.8):
        hits = [int(draw.random() < chance) for _ in range(80)]
        counts.append([(hit, 1, 1) for hit in hits])
        rows = [picture_row(f"val line {i}", *one) for i, one in enumerate(counts[-1])]
        ran(db, rows)

    (one,) = against(db, 1, 2)

    low, high = lift_interval(*counts)
    assert (one.measure, one.n, one.word) == ("f1", 80, "better")
    assert (one.low, one.high) == pytest.approx((low, high), abs=0.03)


@pytest.mark.requirement("UI-03")
@pytest.mark.parametrize("turned", [False, True])
def test_a_detection_is_not_better_where_fewer_pictures_are_solved(
    turned: bool, db: Database
) -> None:
    """Many boxes more on crowded pictures, one false box on each of 12: both tests must agree."""
    few, many = (
        [picture_row(f"val line {i}", 1, 1 + (i < strays), 1) for i in range(40)]
        + [picture_row(f"val line {40 + i}", found, found, 12) for i in range(10)]
        for strays, found in ((0, 2), (12, 8))
    )
    first, second = (many, few) if turned else (few, many)

    (one,) = against(db, ran(db, first), ran(db, second))

    assert (one.gained, one.lost) == ((12, 0) if turned else (0, 12))
    assert one.p_value is not None
    assert one.p_value < 0.001
    assert (one.high < 0) if turned else (one.low > 0)
    assert one.word == "no difference proven"


@pytest.mark.requirement("UI-03")
def test_overlaid_charts_keep_every_spike_of_every_run(client: TestClient, db: Database) -> None:
    """Drawn from all points: a stretch keeps its lowest and its highest value."""
    for spike in (1234, 2345):
        queue(db)
        with night(db) as lane:
            attempt = lane.start()
            for step in range(1, 3000):
                value = 0.99 if step == spike else 0.5
                attempt.add("metric", step=step, values={"pool/score": value})
            attempt.finish()

    drawn = client.get("/compare/charts/pool.json?job=1&job=2").json()
    text = client.get("/compare?job=1&job=2").text

    assert len(drawn["x"]) < 2999
    assert [line["label"] for line in drawn["lines"]] == ["#1", "#2"]
    assert [max(line["high"]) for line in drawn["lines"]] == [0.99, 0.99]
    assert [line["dash"] for line in drawn["lines"]] == [[], [7, 3]]
    assert 'data-chart="/compare/charts/pool.json?job=1&amp;job=2"' in text
    assert "#1: 50.0 % at step 1, 50.0 % at step 2999 (between 50.0 % and 99.0 %)" in words(text)


@pytest.mark.requirement("UI-03")
def test_a_filter_is_a_comparison_with_the_best_run_first_and_missing_scores_last(
    client: TestClient, db: Database
) -> None:
    """Its address finds the runs anew; one without a held-out row is in the table too."""
    weak, strong = (
        ran(db, heldout(rows), seed=i, lr=1e-4) for i, rows in enumerate((WEAK, STRONG))
    )
    ran(db, heldout(STRONG), seed=3, lr=1e-3)
    waits = queue(db, lr=1e-4, seed=2)

    text = words(client.get("/compare?q=lr:0.0001").text)

    assert "Compare 3 runs" in text
    assert f"#{strong} scores highest: 83.3 % of 60 rows at step 30." in text
    assert f"Of 2 others held against #{strong}: 1 worse." in text
    assert text.index(f"#{weak} 33.3 %") < text.index("it has not run yet")
    assert f"#{waits}" in text
    assert "4 runs match" not in text


@pytest.mark.requirement("UI-03")
@pytest.mark.parametrize(
    ("q", "said"), [("lr:7", "0 runs match 'lr:7'; name 2 to 40"), ("gan:>2", "gan")]
)
def test_a_filter_that_leaves_nothing_to_compare_says_so(
    client: TestClient, db: Database, q: str, said: str
) -> None:
    """With the filter still in its field."""
    ran(db, heldout(WEAK))

    text = client.get("/compare", params={"q": q}).text

    assert said in words(text)
    assert f'name="q" value="{html.escape(q)}"' in text


@pytest.mark.requirement("UI-03")
def test_any_series_is_drawn_along_tokens_and_seeds_as_their_mean(
    client: TestClient, db: Database
) -> None:
    """Three seeds are one line with a band; what is picked stands in the address."""
    for seed, entropy in enumerate((1.0, 2.0, 3.0)):
        queue(db, seed=seed, data={"split_seed": 0})
        with night(db) as lane:
            attempt = lane.start()
            for step in (1, 2):
                values = {"train/entropy": entropy, "rollout/tokens": 100.0 * (seed + 1)}
                attempt.add("metric", step=step, values=values)
            attempt.finish()
    runs = "job=1&job=2&job=3"

    mean = client.get(f"/compare/charts/series.json?{runs}&series=train/entropy&seeds=true").json()
    tokens = client.get(f"/compare/charts/series.json?{runs}&series=train/entropy&axis=tokens")
    page = client.get(f"/compare?{runs}&series=train/entropy&axis=time").text

    assert [line["label"] for line in mean["lines"]] == ["#1, mean of 3 seeds"]
    assert mean["lines"][0]["values"] == [2.0, 2.0]
    assert mean["lines"][0]["low"][0] < 1.0
    assert mean["lines"][0]["high"][0] > 3.0
    assert (tokens.json()["x"], tokens.json()["x_label"]) == (
        [100.0, 200.0, 300.0, 400.0, 600.0],
        "tokens sampled",
    )
    address = "/compare/charts/series.json?job=1&amp;job=2&amp;job=3&amp;series=train%2Fentropy"
    assert f'data-chart="{address}&amp;axis=time"' in page
    assert "KL to the step-0 policy" not in page


@pytest.mark.requirement("UI-03")
def test_any_run_of_a_comparison_can_be_the_one_that_the_others_are_held_against(
    client: TestClient, db: Database
) -> None:
    """One click turns it round; the board's ticks come in the table's order, newest first."""
    old, new, third = (
        ran(db, heldout(rows), seed=seed) for seed, rows in enumerate((WEAK, STRONG, WEAK))
    )

    page = client.get(f"/compare?job={new}&job={old}&job={third}").text

    link = f"/compare?job={old}&job={new}&job={third}"
    assert f'<a href="{link.replace("&", "&amp;")}">Hold the others against #{old}</a>' in page
    assert f"against #{new}</a>" not in page
    assert "better" in words(client.get(link).text)


@pytest.mark.requirement("UI-03")
def test_a_sweep_is_a_table_sorted_by_its_address(client: TestClient, db: Database) -> None:
    """Swept settings as columns; the best first where the address asks for it."""
    body = {"kind": "rl_run", "config": CONFIG, "sweep": {"lr": [1e-4, 1e-3, 1e-2]}}
    sweeps.submit_sweep(db, submission(body), actor="test")
    with night(db) as lane:
        for after in (0.6, 0.8):
            lane.start().finish(after=after)

    text = client.get("/compare?sweep=1&sort=-lift").text

    order = [text.index(f'href="/jobs/{job_id}"') for job_id in (2, 1, 3)]
    assert order == sorted(order)
    assert 'aria-sort="descending"' in text
    assert ">lr</a></th>" in text
    assert "0.001" in text
    assert client.get("/compare?sweep=9").status_code == 404


@pytest.mark.requirement("UI-03")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("job=1", "a comparison needs two jobs; name another one"),
        ("job=1&job=1", "job 1 is named twice"),
        ("&".join(f"job={i}" for i in range(1, 42)), "41 jobs are too many to compare"),
        ("job=1&job=3", "job 3: it has not run yet"),
        ("job=1&job=2", "the two measure different things"),
    ],
)
def test_what_cannot_be_compared_is_said_in_words(
    client: TestClient, db: Database, query: str, said: str
) -> None:
    """On the page, not as an error: the form stands beside it, or the rest of the comparison."""
    ran(db, heldout(WEAK))
    ran(db, [picture_row(f"p{i}", 1, 1, 1) for i in range(40)])
    queue(db)

    answer = client.get(f"/compare?{query}")

    assert answer.status_code == 200
    assert said in words(answer.text)


def test_jobs_that_do_not_exist_are_not_found(client: TestClient, db: Database) -> None:
    """By page, REST and chart alike."""
    ran(db, heldout(WEAK))

    for address in ("/compare?", "/api/v1/compare?", "/compare/charts/pool.json?"):
        assert client.get(f"{address}job=1&job=9").status_code == 404
    with pytest.raises(CompareError):
        compare_jobs(db, [1])
    assert client.get("/api/v1/compare?job=1").status_code == 422


def test_what_an_empty_cockpit_prints_queues_two_runs_that_differ_in_one_setting(
    client: TestClient,
    db: Database,
    cockpit: Cockpit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copied line by line into a terminal, in whatever directory that is."""
    page = client.get("/compare").text
    printed = html.unescape(page.partition("<pre><code>")[2].partition("</code>")[0])
    first, second, last = (shlex.split(line)[1:] for line in printed.splitlines())
    monkeypatch.chdir(tmp_path)

    assert [cockpit(*line).code for line in (first, second)] == [0, 0]

    before, after = ({**job.config} for job in jobs.next_jobs(db))
    assert {name for name in before if before[name] != after[name]} == {"lr"}
    assert last == ["drain"]


def test_the_form_offers_finished_runs_alone(client: TestClient, db: Database) -> None:
    """Twelve queued jobs would push out every run that has something to compare."""
    done = ran(db, [row("2+2=")])
    for _ in range(12):
        queue(db)

    text = client.get("/compare").text

    assert text.count('name="job"') == 1
    assert f'name="job" value="{done}"' in text


def test_hostile_names_and_completions_are_text(client: TestClient, db: Database) -> None:
    """A comparison shows what two models wrote."""
    for success in (True, False):
        evil = [row("<img src=x>", text="<script>1</script>", success=success) for _ in range(1)]
        ran(db, evil)

    text = client.get("/compare?job=1&job=2").text

    assert "<script>1" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;1" in text


@pytest.mark.requirement("UI-03")
def test_the_command_says_the_same_as_rest(
    client: TestClient, db: Database, cockpit: Cockpit
) -> None:
    """One comparison, three doors."""
    ran(db, heldout(WEAK), lr=1e-3)
    ran(db, heldout(STRONG), lr=1e-4)

    rest = client.get("/api/v1/compare?job=1&job=2").json()
    said, as_json = cockpit("compare", "1", "2"), cockpit("compare", "1", "2", "--json")

    assert json.loads(as_json.out) == rest
    assert "job 2 against job 1: better; +50.0 points" in said.out
    assert "60 same rows, 30 gained, 0 lost" in said.out
    assert "lr       0.001  0.0001" in said.out
    assert cockpit("compare", "1").code == 2
    assert cockpit("compare", "1", "9").code == 3
    rows = client.get("/api/v1/compare/rows?a=1&b=2&which=gained&limit=3").json()
    assert [one["id"] for one in rows["rows"]] == ["q20", "q21", "q22"]


def test_copies_of_a_question_count_once_between_runs_too(db: Database) -> None:
    """60 rows that ask 20 things: the interval and the test of 20, and both numbers are said."""
    first, second = ([i % 20 < solved for i in range(60)] for solved in (6, 14))
    rows = [heldout(first), heldout(second)]
    for one in rows:
        for place, each in enumerate(one):
            each["prompt"] = f"What is {place % 20}{'?' * (place // 20)}"
        ran(db, one)

    (found,) = against(db, 1, 2)

    alone = compare([i < 6 for i in range(20)], [i < 14 for i in range(20)])
    assert (found.n, found.different, found.word) == (60, 20, "too few rows")
    assert (found.low, found.high) == pytest.approx(alone.ci95)
    assert found.p_value == alone.p_value


def test_a_demo_is_named_beside_a_real_run(db: Database) -> None:
    """What a tiny embedded model gained is nobody's result."""
    ran(db, heldout(WEAK))
    ran(db, heldout(STRONG))
    alike = compare_jobs(db, [1, 2]).cautions
    with db.write_tx() as conn:
        theirs = {"base": "/models/theirs", "data": {"source": "/rows.jsonl"}}
        conn.execute(update(job).where(job.c.id == 2).values(config=theirs))

    said = "Job 1 is a demo: its model or its data are embedded ones."
    assert said not in alike
    assert said in compare_jobs(db, [1, 2]).cautions
