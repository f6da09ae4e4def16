"""`cockpit rescore`: the completions of a real run by other verifiers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.text import wording
from engine.contract.intervals import compare
from tests.app.judged import Judged, judged
from worker.db.connection import Database

Cockpit = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return judged(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def job(mixed: Judged, db: Database) -> str:
    return str(mixed.taken_into(db))


def _found(cockpit: Cockpit, *arguments: str) -> dict[str, Any]:
    code, out, err = cockpit("rescore", *arguments, "--json")
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def _by(lines: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in lines if one["verifier"] == name)


@pytest.mark.requirement("EX-23")
def test_a_gates_completions_are_scored_as_the_gate_did_and_by_others(
    cockpit: Cockpit, mixed: Judged, job: str
) -> None:
    """The run's own verifier gives the gate's score again; a strict one reads no bare number."""
    step = mixed.result["selected_step"]
    found = _found(cockpit, job, "-v", "exact,gsm8k,gsm8k_last_number", "--split", "nines")

    [bench] = found["benches"]
    gate = next(g for g in mixed.events if g.get("split") == "nines" and g["step"] == step)
    exact = _by(bench["judged"], "exact")
    assert bench["after_name"] == f"job {job}, step {step}"
    assert (exact["score"], exact["n"]) == (pytest.approx(gate["score"]), 400)
    assert exact["score"] == _by(bench["judged"], "its run's judge")["score"]
    assert [exact["low"], exact["high"]] == pytest.approx(gate["ci95"])
    assert exact["truncated"] == pytest.approx(gate["values"]["truncated"])
    strict = _by(bench["judged"], "gsm8k")
    assert (strict["score"], strict["only_first"]) == (0.0, round(exact["score"] * 400))


@pytest.mark.requirement("EX-23")
def test_before_against_after_is_the_reports_own_comparison(
    cockpit: Cockpit, mixed: Judged, job: str
) -> None:
    """`JOB@0 JOB@STEP`: the difference and its interval are those of the run's table."""
    step = mixed.result["selected_step"]
    _, shown, _ = cockpit("rescore", f"{job}@0", f"{job}@{step}", "-v", "exact", "--split", "nines")
    found = _found(cockpit, f"{job}@0", f"{job}@{step}", "-v", "exact", "--split", "nines")

    line = next(one for one in mixed.result["benches"] if one["name"] == "nines")
    change = _by(found["benches"][0]["changes"], "exact")["whole"]
    assert [change[name] for name in ("lift", "gained", "lost", "n", "p")] == pytest.approx(
        [line[name] for name in ("lift", "gained", "lost", "n", "p_value")]
    )
    assert [change["low"], change["high"]] == pytest.approx(line["ci95"])
    assert f"{wording.points(line['lift'])} ({wording.interval(*line['ci95'])})" in shown
    assert "2 differences were tested" in shown


def test_own_rows_of_a_mixture_are_split_by_source(
    cockpit: Cockpit, mixed: Judged, job: str
) -> None:
    """As the report's table has them: an average of sources never stands alone."""
    [bench] = _found(cockpit, job, "-v", "exact", "--split", "report")["benches"]

    parts = {part["name"]: part for part in _by(bench["judged"], "exact")["parts"]}
    lines = {line["name"]: line for line in mixed.result["benches"]}
    for name in ("sevens", "threes"):
        assert parts[name]["score"] == pytest.approx(lines[name]["after"])


def test_all_benches_of_a_run_come_each_by_itself(cockpit: Cockpit, job: str) -> None:
    code, shown, _ = cockpit("rescore", job, "--verifier", "exact")

    assert code == 0
    for name in ("select", "report", "nines", "more-sevens"):
        assert f"\n{name}, job {job}, step" in f"\n{shown}"


@pytest.mark.requirement("EX-23")
def test_nothing_of_a_run_changes_when_it_is_judged_again(cockpit: Cockpit, mixed: Judged) -> None:
    run = mixed.run.root
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}

    _found(cockpit, str(run), "-v", "exact", "--split", "select")

    assert {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file()} == files


def test_two_files_of_a_run_are_compared_as_they_stand(cockpit: Cockpit, mixed: Judged) -> None:
    """Pairing is by row: the numbers of two gates are those of their files."""
    files = [mixed.run.rollouts / f"heldout-nines-{step:06d}.jsonl" for step in (0, 12)]
    rows = [[json.loads(text) for text in file.read_text().splitlines()] for file in files]

    found = _found(cockpit, *map(str, files), "-v", "exact")

    change = _by(found["benches"][0]["changes"], "exact")["whole"]
    by_hand = compare(*([one["success"] for one in side] for side in rows))
    assert (change["gained"], change["lost"]) == (by_hand.gained, by_hand.lost)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("99", "-v", "exact"), "job 99 does not exist"),
        (("nowhere.jsonl", "-v", "exact"), "neither the number of a job nor a file"),
        (("{job}", "-v", "exakt"), "is not a verifier; did you mean exact?"),
        (("{job}", "-v", ","), "names 0 verifiers"),
        (("{job}", "-v", "exact", "--split", "MATH"), "no held-out completions of 'MATH'"),
        (("{job}@7", "-v", "exact"), "it has: select at 0, 2, 4"),
        (("{job}", "-v", "exact", "--by", "grade", "--split", "nines"), "can be split by: source"),
        (("1", "2", "3", "-v", "exact"), "one is judged, or two are compared"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_can(
    cockpit: Cockpit, job: str, arguments: tuple[str, ...], problem: str
) -> None:
    code, _, err = cockpit("rescore", *(one.format(job=job) for one in arguments))

    assert code in {2, 3}
    assert problem in err
