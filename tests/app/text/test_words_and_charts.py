"""What pages say about numbers, results, settings and logs."""

from __future__ import annotations

import doctest
import io
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import update
from starlette.testclient import TestClient

from app.charts import charts
from app.charts.panels import CHARTS, HELDOUT
from app.cli.demo import screen
from app.forms.schema import flattened, sections
from app.text import wording
from app.text.headline import Headline, title
from app.web.log_reader import WINDOW, read_log
from engine.contract.registry import kinds
from engine.contract.run_dir import RunDir, write_json
from tests.app.night import night, queue
from tests.app.pages.test_pages import words
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.db.tables import attempt, job
from worker.queue.states import State
from worker.read import jobs
from worker.read.board import Filter, board_page
from worker.read.series import Curve, Summary


def test_the_examples_in_the_wording_hold() -> None:
    """Each sentence's form is stated once, beside its function."""
    assert doctest.testmod(wording).failed == 0


@pytest.mark.parametrize("function", list(wording.FILTERS.values()))
def test_what_is_not_known_yet_is_no_number(function: Any) -> None:
    """A page shows a dash, not a zero that nobody measured."""
    if function is wording.interval:
        assert function(None, 0.1) == "–"
    else:
        assert function(None) in {"–", "none", ""}


@pytest.mark.parametrize("moment", [1e15, -1e15, 1e99, float("inf"), float("nan")])
def test_a_moment_that_no_date_can_tell_is_said_in_words(moment: float) -> None:
    """A page stands whatever an engine expected."""
    told = {tell(moment) for tell in (wording.clock, wording.minute, wording.when, wording.zone)}

    assert told == {"in no calendar"}
    assert wording.iso(moment) == ""


def test_a_result_of_another_version_reads_as_not_known(db: Database) -> None:
    """The engine writes the result; a wrong type must not take the page down."""
    job_id = queue(db)
    strange = {
        "phase": 3,
        "step": "x",
        "lift_ci95": [1],
        "pool_score": float("nan"),
        "mem_trace": 1,
    }
    job = jobs.get_job(db, job_id).model_copy(update={"result": strange})

    headline = Headline.of(job)

    assert headline == Headline()
    assert title(job, headline) == f"queued · job {job_id}"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"doing": "evaluate: decode", "done": 32, "of": 1000, "left_s": 725.0},
            "evaluate: decode 32 of 1000, 12 min 5 s left",
        ),
        ({"doing": "decode", "done": 0, "of": 64, "left_s": None}, "decode 0 of 64"),
        ({"doing": "load the model", "done": 0, "of": None, "left_s": None}, "load the model"),
        ({"doing": 7, "done": "many"}, None),
        (None, None),
    ],
)
def test_a_long_phase_is_told_as_far_as_it_is(db: Database, part: Any, said: str | None) -> None:
    """Of an engine of another version as much as it says."""
    job = jobs.get_job(db, queue(db)).model_copy(update={"result": {"part": part}})

    assert Headline.of(job).part == said


def test_the_title_says_progress_while_a_job_runs_and_the_verdict_after(db: Database) -> None:
    """What a tab's label can hold: the one thing that changes."""
    queue(db, name="tonight")
    with night(db) as lane:
        attempt = lane.start()
        attempt.step(12, 0.6)
        live = jobs.get_job(db, attempt.job_id)
        attempt.finish()
        done = jobs.get_job(db, attempt.job_id)

    assert title(live, Headline.of(live)) == "12/40 running · tonight (job 1)"
    assert title(live, Headline(step=12)) == "12 running · tonight (job 1)"
    assert title(done, Headline.of(done)) == "gain · tonight (job 1)"


@pytest.mark.requirement("UI-01")
def test_the_time_of_a_run_is_the_lanes_without_the_days_it_waited(db: Database) -> None:
    """Two attempts of two minutes, two days apart, that never came to a result."""
    job_id = queue(db)
    with night(db) as lane:
        for ended in (State.QUEUED, State.FAILED):
            lane.start().settle(Verdict(ended, "it stopped"))
    with db.write_tx() as conn:
        conn.execute(update(attempt).values(seconds=120.0))
        conn.execute(update(job).values(started_at=job.c.finished_at - 2 * 86400))

    [row] = board_page(db, Filter(), HELDOUT).rows

    assert Headline.of(jobs.get_job(db, job_id)).seconds == 240
    assert Headline.of(row).seconds == 240


def test_the_demo_says_the_time_that_the_pages_say(db: Database) -> None:
    """And which part of it its engine counted as work."""
    job_id = queue(db)
    with night(db) as lane:
        lane.start().finish()
    with db.write_tx() as conn:
        conn.execute(update(attempt).values(seconds=184.0))

    printed = io.StringIO()
    shown = screen(jobs.get_job(db, job_id), "http://127.0.0.1:8765/jobs/1")
    Console(file=printed, width=200).print(shown)

    assert "3 min 4 s on the lane, 2 min 34 s of it in steps and gates" in printed.getvalue()


def test_the_phases_before_the_current_one_are_done(db: Database) -> None:
    """The strip reads from left to right."""
    assert Headline(phase="sampling").phases == [
        ("lane-bringup", "done"),
        ("warmup", "done"),
        ("sampling", "now"),
        ("training", "to come"),
        ("heldout-gate", "to come"),
        ("teardown", "to come"),
    ]


def curve(*values: tuple[int, float], size: int = 1) -> Curve:
    """Values as they are, or as if each stood for a stretch."""
    steps, numbers = zip(*values, strict=True)
    return Curve.of_values(steps, numbers, (None,) * len(steps))._replace(size=size)


def summary_of(*values: tuple[int, float]) -> Summary:
    """What a rollup says of these."""
    numbers = [value for _, value in values]
    (first_step, first), (last_step, last) = values[0], values[-1]
    ends = (first_step, first, None, last_step, last, None)
    return Summary(len(values), sum(numbers), min(numbers), max(numbers), *ends)


def test_the_columns_of_a_chart_are_aligned_by_step() -> None:
    """A step without a value has null, never its neighbour's value."""
    metrics = {
        "pool/score": curve((1, 0.5), (2, 0.6)),
        "heldout/select": curve((0, 0.55), (2, 0.65)),
    }

    drawing = charts.drawing(CHARTS["learning"], metrics, selected_step=2)

    assert drawing["x"] == [0, 1, 2]
    assert [line["values"] for line in drawing["lines"]] == [[None, 0.5, 0.6], [0.55, None, 0.65]]
    assert (drawing["gates"], drawing["selected"]) == ([0, 2], 2)


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("n", [99, 100, 101, 401, 4001])
def test_gates_are_marked_evenly_over_the_whole_run(n: int) -> None:
    """A mark at each of a long run's gates is a grey curtain; the last ones alone look as if the
    gates began there. How many are marked is said where it is not all.
    """
    every = [(step, 0.5) for step in range(0, 10 * n, 10)]
    metrics = {"pool/score": curve(*every), "heldout/select": curve(*every)}

    drawing = charts.drawing(CHARTS["learning"], metrics)

    gates = drawing["gates"]
    marked = min(n, charts.MOST_GATES)
    assert len(gates) == marked
    assert (gates[0], gates[-1]) == (0, every[-1][0])
    apart = {after - before for before, after in itertools.pairwise(gates)}
    assert max(apart) - min(apart) <= 10
    assert (f"; {marked} of {n} gates are marked" in drawing["said"]) == (marked < n)


def test_a_long_series_is_thinned_and_keeps_its_extremes_and_ends() -> None:
    """A spike that lasted one step is what one looks for."""
    chance = random.Random(0)
    points = [(step, chance.random()) for step in range(50_000)]
    points[31_234] = (31_234, 99.0)

    thin = charts.thinned(points)

    assert len(thin) <= charts.MOST_POINTS + 2
    assert (31_234, 99.0) in thin
    assert (thin[0], thin[-1]) == (points[0], points[-1])


@pytest.mark.requirement("UI-02")
def test_the_gap_is_the_mean_pool_before_a_gate_minus_its_held_out_score() -> None:
    """By hand: (0.6 + 0.8) / 2 - 0.6."""
    gap_to_pool = charts.gap_at(2, 0.6, [(1, 0.6), (2, 0.8)])
    assert gap_to_pool is not None
    assert gap_to_pool.value == pytest.approx(0.1)
    assert (gap_to_pool.step, gap_to_pool.n) == (2, 2)


@pytest.mark.requirement("UI-02")
def test_the_gap_says_at_which_gate_and_over_how_many_steps_it_was_taken(
    client: TestClient, db: Database
) -> None:
    """The newest pool score stands beside it and is another one: 20 to 24 are its mean here."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in range(1, 31):
            attempt.add("metric", step=step, values={"pool/score": step / 40})
        attempt.gate(24, 0.65)
        text = words(client.get(f"/jobs/{job_id}").text)
        attempt.finish()

    assert "gap to pool −10.0 points at the gate of step 24, mean pool of 5 steps" in text
    assert (
        "Pool stands 10.0 points below held-out (at the gate of step 24, mean pool of 5 steps)."
        in text
    )


@pytest.mark.requirement("UI-02")
def test_each_chart_says_in_a_sentence_what_it_shows() -> None:
    """Beginning, end and range of each line, for those who do not see the lines."""
    metrics = {
        "pool/score": summary_of((1, 0.5), (2, 0.9), (3, 0.7)),
        "heldout/select": summary_of((0, 0.55)),
    }

    assert charts.summary(CHARTS["learning"], metrics) == (
        "Pool (training prompts): 50.0 % at step 1, 70.0 % at step 3 (between 50.0 % and 90.0 %). "
        "Held-out (select rows): 55.0 % at step 0."
    )
    assert charts.summary(CHARTS["kl"], {}) == "No values yet."


@pytest.mark.requirement("UI-02")
def test_each_chart_is_a_table_too() -> None:
    """The same values, one row a step, with interval and gap in words."""
    metrics = {
        "pool/score": [(1, 0.5)],
        "heldout/select": [(0, 0.55), (2, 0.4)],
        "heldout/select/low": [(0, 0.5)],
        "heldout/select/high": [(0, 0.6)],
    }

    table = charts.table(CHARTS["learning"], metrics, 3)

    assert table.rows == [
        ["0", "–", "55.0 %", "50.0 % to 60.0 %", "–"],
        ["1", "50.0 %", "–", "–", "–"],
        ["2", "–", "40.0 %", "–", "+10.0 points"],
    ]


@pytest.mark.requirement("UI-02")
def test_a_chart_in_few_rows_tells_intervals_and_what_stretches_reach() -> None:
    """Of a stretch its last value, and from the lowest to the highest."""
    curves = {
        "pool/score": curve((7, 0.5), (15, 0.75), size=8),
        "heldout/select": curve((0, 0.55), (15, 0.4)),
        "heldout/select/low": curve((0, 0.5)),
        "heldout/select/high": curve((0, 0.6)),
    }

    table = charts.outline(CHARTS["learning"], curves)

    assert table.head == ["step", "pool (training prompts)", "held-out (select rows)"]
    assert table.rows == [
        ["0", "–", "55.0 % (50.0 % to 60.0 %)"],
        ["7", "50.0 % (50.0 % to 50.0 %)", "–"],
        ["15", "75.0 % (75.0 % to 75.0 %)", "40.0 %"],
    ]
    assert table.said == "Each row: the last value of 8 steps (lowest to highest)."
    assert charts.outline(CHARTS["learning"], {}).rows == []


def test_every_setting_of_every_kind_has_help_and_a_type() -> None:
    """The form and `cockpit kinds` are made from them; an empty help would show there."""
    for kind in kinds().values():
        schema = kind.config.model_json_schema()
        leaves = flattened(schema)

        assert len({leaf.name for leaf in leaves}) == len(leaves)
        assert [leaf.name for leaf in leaves if not leaf.help] == []
        assert [section.name for section in sections(schema) if not section.help] == []


def test_the_settings_of_an_optional_section_are_listed_under_it() -> None:
    """`warmup` is absent by default; naming one of its settings brings it in."""
    schema = kinds()["rl_run"].config.model_json_schema()

    leaf = next(leaf for leaf in flattened(schema) if leaf.name == "warmup.lr")
    section = next(section for section in sections(schema) if section.name == "warmup")

    assert (leaf.section, leaf.type, leaf.limits) == (
        "warmup",
        "number",
        "more than 0, less than 1",
    )
    assert section.optional


def test_the_log_is_read_from_its_end_whatever_its_size(tmp_path: Path) -> None:
    """A run that prints for a night must not fill the memory of the page."""
    run = RunDir(tmp_path)
    write_json(run.attempt(2).job_file, {})
    run.attempt(2).log.write_text("x" * (WINDOW + 10) + "\nlast but one\n\x1b[2Jlast \x08\n")

    page = read_log(tmp_path)

    assert page is not None
    assert (page.attempt, [line.text for line in page.lines]) == (2, ["last but one", "last �"])


def test_a_job_that_never_ran_has_no_log(tmp_path: Path) -> None:
    """None, so that the page can say why."""
    assert read_log(tmp_path) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3.0, "3"),
        (0.12345, "0.1235"),
        (660.64, "660.6"),
        (22543.7, "22544"),
        (1234567.0, "1234567"),
        (-36450.2, "-36450"),
        (1e-6, "1e-06"),
    ],
)
def test_a_large_number_is_written_without_an_exponent(value: float, words: str) -> None:
    """Nobody reads 2.254e+04 tokens a second at seven in the morning."""
    assert wording.number(value) == words


@pytest.mark.requirement("UI-02")
def test_a_series_without_values_is_not_in_the_legend() -> None:
    """What a kind of run never measures is not drawn as an empty name."""
    chart = CHARTS["learning"]

    drawing = charts.drawing(chart, {HELDOUT: curve((0, 0.5))})

    assert [line["label"] for line in drawing["lines"]] == ["held-out (select rows)"]


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("name", CHARTS)
def test_no_two_lines_of_a_chart_are_told_apart_by_colour_alone(name: str) -> None:
    """Each has dashes of its own, or is the one that bears points."""
    looks = [(tuple(line.dash), line.marks) for line in CHARTS[name].lines]

    assert len(set(looks)) == len(looks)
