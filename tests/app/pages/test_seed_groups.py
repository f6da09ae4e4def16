"""Seed groups: a config over its seeds is one group, and two of them are tested between runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats
from sqlalchemy import update
from starlette.testclient import TestClient

from engine.contract.intervals import compare
from tests.app.conftest import Said
from tests.app.night import CONFIG, night, queue
from tests.app.pages.test_pages import words
from tests.app.rollouts import heldout, write
from worker.attempt.settlement import Verdict
from worker.clock.night import night_at
from worker.clock.window import zone_named
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.states import State
from worker.queue.submission import submission
from worker.queue.sweeps import submit_sweep
from worker.read import jobs
from worker.read.comparison.compare import CompareError
from worker.read.comparison.groups import GroupComparison, compare_groups
from worker.read.groups import MEMBERS, Group, group_of, groups_among
from worker.report.snapshot import report_of

pytestmark = pytest.mark.requirement("EX-24")

Cockpit = Callable[..., Said]
SPREAD = (0.612, 0.650, 0.689)
BETTER = (0.662, 0.700, 0.739)
"""Five points above the other group, whose seeds lie eight apart."""


def ran(
    db: Database,
    after: float,
    *,
    seed: int,
    before: float = 0.6,
    rows: Sequence[dict[str, Any]] = (),
    split: str = "one",
    benches: Sequence[dict[str, Any]] = (),
    **config: Any,
) -> int:
    """One finished run over the rows of split seed 0."""
    number = queue(db, seed=seed, data={"split_seed": 0}, **config)
    with night(db) as lane:
        attempt = lane.start()
        assert attempt.job_id == number
        if rows:
            write(attempt.run, "heldout-report-000030", rows)
        corpus = {"corpus": {"source": "embedded:addition", "split": split}}
        attempt.finish(before, after, "gain", upstream=corpus, benches=list(benches))
    return number


def group(db: Database, afters: Sequence[float], first: int = 0, **config: Any) -> list[int]:
    """A run for each score, with seeds from `first` on."""
    return [ran(db, one, seed=first + at, **config) for at, one in enumerate(afters)]


def found(db: Database, job_id: int) -> Group:
    group = group_of(db, job_id)
    assert group is not None
    return group


def test_runs_by_hand_and_of_a_sweep_are_one_group(db: Database) -> None:
    """Whoever queued them, on whichever night; another learning rate is another group."""
    wanted = submission({"kind": "rl_run", "config": CONFIG, "seeds": [0, 1]})
    swept = submit_sweep(db, wanted, actor="test").job_ids
    by_hand = queue(db, seed=5, data={"split_seed": 0})
    queue(db, seed=6, data={"split_seed": 0}, lr=1e-5)

    runs = found(db, by_hand).runs

    assert [(run.job_id, run.seed) for run in runs] == [(swept[0], 0), (swept[1], 1), (by_hand, 5)]
    assert {run.state for run in runs} == {State.QUEUED}


def test_a_group_has_the_mean_and_students_interval_over_its_runs(db: Database) -> None:
    """Three runs are three values, whatever their rows."""
    numbers = group(db, SPREAD)

    (line,) = found(db, numbers[0]).benches

    ends = stats.ttest_1samp(SPREAD, 0).confidence_interval(0.95)
    assert (line.after.n, line.after.lowest, line.after.highest) == (3, 0.612, 0.689)
    assert (line.after.low, line.after.high) == pytest.approx((ends.low, ends.high))
    assert line.lift.mean == pytest.approx(sum(SPREAD) / 3 - 0.6)


def test_two_groups_are_tested_between_runs_and_never_over_their_rows_together(
    db: Database,
) -> None:
    """The rows of three runs each, pooled, would say p < 0.001 of what seeds alone do."""
    solved = [[i < 500 * one for i in range(500)] for one in (*SPREAD, *BETTER)]
    a = [ran(db, SPREAD[i], seed=i, rows=heldout(solved[i])) for i in range(3)]
    b = [ran(db, BETTER[i], seed=i, rows=heldout(solved[3 + i]), lr=1e-5) for i in range(3)]

    (line,) = compare_groups(db, a[1], b[2]).benches

    pooled = compare([*chain(*solved[:3])], [*chain(*solved[3:])])
    between = stats.ttest_ind(BETTER, SPREAD, equal_var=False)
    assert pooled.p_value < 0.001
    assert line.tested is not None
    assert line.tested.p_value == pytest.approx(between.pvalue)
    assert line.tested.p_value > 0.1
    assert line.word == "no difference proven"
    assert line.tested.shows > line.lift


def test_what_is_larger_than_the_spread_of_seeds_is_said(db: Database) -> None:
    """In either direction."""
    group(db, SPREAD)
    group(db, [one + 0.2 for one in SPREAD], lr=1e-5)

    better, worse = compare_groups(db, 1, 4), compare_groups(db, 4, 1)

    assert [one.benches[0].word for one in (better, worse)] == ["better", "worse"]
    assert better.benches[0].tested is not None
    assert better.benches[0].tested.low > 0
    assert [row.name for row in better.settings] == ["lr"]


def _word(compared: GroupComparison) -> tuple[str, object]:
    (line,) = compared.benches
    return line.word, line.tested


def test_one_run_or_runs_without_spread_get_no_test_and_no_p(
    db: Database, client: TestClient
) -> None:
    """And each says why, on the page too."""
    group(db, SPREAD)
    group(db, [0.9], lr=1e-5)
    group(db, [0.8, 0.8, 0.8], lr=1e-4)

    assert _word(compare_groups(db, 1, 4)) == ("too few runs", None)
    assert _word(compare_groups(db, 5, 1)) == ("no spread", None)
    assert "not tested: one run of a config says nothing about its spread" in words(
        client.get("/compare/groups?a=1&b=4").text
    )
    assert "not tested: the runs of a group do not differ" in words(
        client.get("/compare/groups?a=5&b=1").text
    )


def test_groups_that_answered_other_rows_are_not_tested(db: Database) -> None:
    """Their difference is the rows' too."""
    for seed in (0, 1):
        ran(db, 0.6 + seed / 50, seed=seed, rows=heldout([True] * 40))
        ran(db, 0.9 - seed / 50, seed=seed, rows=heldout([True] * 40, first=100), lr=1e-5)

    assert _word(compare_groups(db, 1, 2)) == ("not the same rows", None)


def test_a_seed_counts_once_by_its_newest_run(db: Database) -> None:
    """The same seed again is no other draw: it would shrink the interval for nothing."""
    group(db, SPREAD)
    again = ran(db, 0.65, seed=1)

    runs = found(db, 1)

    assert [run.job_id for run in runs.counted] == [1, again, 3]
    assert runs.benches[0].after.n == 3


def test_a_seed_without_a_score_is_said_and_not_left_out_silently(
    db: Database, cockpit: Cockpit
) -> None:
    """A mean over those that did not fail is too good."""
    group(db, SPREAD)
    queue(db, seed=3, data={"split_seed": 0})
    with night(db) as lane:
        lane.start().settle(Verdict(State.FAILED, "it collapsed", "COLLAPSED"))
    group(db, BETTER, lr=1e-5)

    shown, compared = cockpit("show", "1").out, cockpit("compare", "--groups", "1", "5")

    assert "Job 4 (seed 3) ended failed without a score: a mean over the others may be" in shown
    assert "Job 4 (seed 3) ended failed without a score" in compared.err


def test_runs_that_held_out_other_rows_all_the_same_are_in_no_common_group(db: Database) -> None:
    """The split that each run froze has the last word."""
    group(db, SPREAD)
    other = ran(db, 0.9, seed=7, split="another")

    assert [run.job_id for run in found(db, 1).runs] == [1, 2, 3]
    assert [run.job_id for run in found(db, other).runs] == [other]


BENCH = {"name": "gsm8k", "kind": "bench", "n": 200, "before": 0.30}


def test_each_bench_is_tested_and_corrected_for_the_others(db: Database) -> None:
    """The one that decides stands first; Holm's correction over all."""
    for lr, shift in ((1e-4, 0.0), (1e-5, 0.2)):
        for seed, one in enumerate(SPREAD):
            ran(db, one, seed=seed, lr=lr, benches=[BENCH | {"after": one - 0.3 + shift}])

    first, second = compare_groups(db, 1, 4).benches

    assert (first.a.decides, second.a.label) == (True, "gsm8k")
    assert (first.word, second.word) == ("no difference proven", "better")
    assert second.tested is not None
    assert second.tested.p_holm == pytest.approx(2 * second.tested.p_value)


def test_what_cannot_be_compared_is_refused_by_name(db: Database, cockpit: Cockpit) -> None:
    """One group with itself, a job of a version without groups, and one job alone."""
    group(db, SPREAD)
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == 3).values(group_hash=None))

    with pytest.raises(CompareError, match="jobs 1 and 2 are of one group: they differ in seed"):
        compare_groups(db, 1, 2)
    with pytest.raises(CompareError, match="job 3 is in no seed group"):
        compare_groups(db, 1, 3)
    refused = cockpit("compare", "--groups", "1")
    assert (refused.code, "two groups are compared, and 1 jobs are named" in refused.err) == (
        2,
        True,
    )


def test_groups_that_began_apart_are_cautioned(db: Database) -> None:
    """Another base: not all of the difference is the training's."""
    group(db, SPREAD)
    group(db, SPREAD, before=0.4, lr=1e-5)

    (caution,) = [one for one in compare_groups(db, 1, 4).cautions if "apart" in one]

    assert "60.0% and 40.0% on average at step 0" in caution


def test_a_runs_page_says_how_far_its_seeds_spread(
    db: Database, client: TestClient, cockpit: Cockpit
) -> None:
    """And `cockpit show` says the same; a run whose config had one seed says nothing."""
    group(db, SPREAD)
    alone = ran(db, 0.7, seed=0, lr=1e-5)
    said = (
        "3 runs of this config with seeds 0, 1, 2 ended between 61.2 % and 68.9 %: seeds alone "
        "move it by 7.7 points, more than this run's gain: +5.0 points."
    )

    assert said in words(client.get("/jobs/2").text)
    assert said in cockpit("show", "2").out
    assert "runs of this config" not in client.get(f"/jobs/{alone}").text


def test_a_sweeps_page_shows_each_config_over_its_seeds(db: Database, client: TestClient) -> None:
    """A row for each learning rate, and a form that holds one against another."""
    wanted = submission(
        {"kind": "rl_run", "config": CONFIG, "seeds": [0, 1], "sweep": {"lr": [1e-4, 1e-5]}}
    )
    made = submit_sweep(db, wanted, actor="test")
    with night(db) as lane:
        for after in (0.6, 0.7, 0.8, 0.9):
            lane.start().finish(0.5, after)

    page = words(client.get(f"/compare?sweep={made.sweep_id}").text)

    assert "jobs 1, 2 (seeds 0, 1)" in page
    assert "65.0 % (95 % interval between 2 runs 1.5 % to 100.0 %)" in page
    assert "jobs 3, 4 (seeds 0, 1)" in page
    assert "Compare two groups" in page


def test_rest_and_the_command_line_answer_alike(
    db: Database, client: TestClient, cockpit: Cockpit
) -> None:
    """Any member names its group."""
    group(db, SPREAD)
    group(db, BETTER, lr=1e-5)

    rest = client.get("/api/v1/compare/groups?a=2&b=6").json()
    line = json.loads(cockpit("compare", "--groups", "3", "4", "--json").out)
    one = client.get("/api/v1/jobs/2/group").json()

    assert rest == line
    assert rest["a"] == one
    assert (
        "no difference proven; +5.0 points; 95 % interval"
        in cockpit("compare", "--groups", "1", "4").out
    )


def test_the_morning_report_tells_a_group_that_is_complete(
    db: Database, client: TestClient, cockpit: Cockpit
) -> None:
    """One that waits for another seed is told when that is in."""
    group(db, SPREAD)
    group(db, SPREAD[:2], lr=1e-5)
    queue(db, seed=9, data={"split_seed": 0}, lr=1e-5)

    report = report_of(db, night_at(time.time(), zone_named(None)).day, time.time())

    assert [len(one.runs) for one in report.groups] == [3]
    said = "jobs 1, 2, 3 (seeds 0, 1, 2): 65.0 % (95 % interval between 3 runs 55.5 % to 74.6 %)"
    assert said in cockpit("report", "--date", report.day.isoformat()).out
    assert said in words(client.get(f"/report?date={report.day}").text)


def test_a_group_among_very_many_jobs_is_found_by_its_index(db: Database) -> None:
    """No page reads the history for it."""
    group(db, SPREAD)
    with db.read() as conn:
        query = MEMBERS.params(wanted="x").compile(conn, compile_kwargs={"literal_binds": True})
        plan = " ".join(row[-1] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}"))

    assert "ix_job_group" in plan
    assert "SCAN" not in plan
    assert len(groups_among(db, [1, 2, 3])) == 1


def test_every_door_takes_seeds(
    db: Database, client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """A field of the form, a YAML of the form, REST beside and inside of the config, a file."""
    as_file = tmp_path / "run.yaml"
    as_file.write_text(yaml.safe_dump(CONFIG | {"lr": 5e-4}))
    rest = {"kind": "rl_run", "config": CONFIG}

    typed = {"kind": "rl_run", "yaml": yaml.safe_dump(CONFIG | {"lr": 1e-4}), "seeds": "0, 1"}
    client.post("/new", data=typed)
    written = yaml.safe_dump(CONFIG | {"lr": 2e-4, "seeds": [0, 1]})
    client.post("/new", data={"kind": "rl_run", "yaml": written})
    client.post("/api/v1/sweeps", json=rest | {"seeds": [0, 1]})
    client.post("/api/v1/sweeps", json=rest | {"config": CONFIG | {"lr": 4e-4, "seeds": [0, 1]}})
    cockpit("enqueue", "rl_run", str(as_file), "--set", "seeds=[0,1]")

    made = jobs.list_jobs(db)
    assert [one.config["seed"] for one in made] == [1, 0] * 5
    assert {one.config["data"]["split_seed"] for one in made} == {0}


def test_every_door_refuses_what_is_no_list_alike(
    db: Database, client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """One validation: field, value, what to write; and nothing is queued."""
    as_file = tmp_path / "run.yaml"
    as_file.write_text(yaml.safe_dump(CONFIG | {"seeds": 3}))
    said = "is no list of whole numbers"

    form = client.post("/new", data={"kind": "rl_run", "yaml": as_file.read_text()})
    field = client.post("/new", data={"kind": "rl_run", "seeds": "0, one"})
    rest = client.post("/api/v1/jobs", json={"kind": "rl_run", "config": CONFIG, "seeds": 3})
    file = cockpit("enqueue", "rl_run", str(as_file))

    assert [said in answer for answer in (form.text, field.text, rest.text, file.err)] == [True] * 4
    assert (form.status_code, rest.status_code, file.code) == (422, 422, 2)
    assert jobs.list_jobs(db) == []
