"""Runs on a mixture of sources, judged by benches beside their own held-out rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.events import Event
from engine.contract.run_dir import RunDir
from engine.rl.journal import read_rows
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt
from engine.run.stop import Aborted, rl_hooks

NewAttempt = Callable[..., RunDir]
OpenNewest = Callable[[RunDir], Attempt]
Events = Callable[..., list[Event]]


def _write(path: Path, answer: str, sign: str, rows: int = 120, **more: Any) -> str:
    lines = [
        {"id": f"{sign}{i}", "prompt": f"{i:03d}{sign}", "answer": answer, **more}
        for i in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(path)


def _scored(path: Path) -> list[dict[str, Any]]:
    rows = read_rows(path)
    assert rows
    return rows


@pytest.fixture
def mixed(recipe: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Sevens and threes, told apart by the last character of the question."""
    sevens = _write(tmp_path / "sevens.jsonl", "7", "=")
    threes = _write(tmp_path / "threes.jsonl", "3", "+")
    recipe["data"] = {
        "mix": [
            {"name": "sevens", "source": sevens, "weight": 3.0},
            {"name": "threes", "source": threes, "weight": 1.0},
        ]
    }
    return recipe | {"max_steps": 12, "lr": 1e-2}


@pytest.mark.requirement("EX-07")
def test_each_source_of_a_mixture_has_its_rows_its_curve_and_its_line(
    mixed: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, events: Events
) -> None:
    """The score is the mean over sources by weight, also where rows are many."""
    run = new_attempt(mixed)
    result = rl_run(open_newest(run))

    gates = {(g["split"], g["step"]): g for g in events(run, "gate")}
    steps = {step for split, step in gates if split == "select"}
    assert {(name, step) for name in ("sevens", "threes") for step in steps} <= set(gates)
    for step in steps:
        of_each = [gates[name, step]["score"] for name in ("sevens", "threes")]
        mean = 0.75 * of_each[0] + 0.25 * of_each[1]
        assert gates["select", step]["score"] == pytest.approx(mean)
        assert gates["sevens", step]["n"] == gates["threes", step]["n"] == 30
    for event in events(run, "metric"):
        values = event["values"]
        pool = {values[f"pool/score/{name}"] for name in ("sevens", "threes")}
        assert min(pool) <= values["pool/score"] <= max(pool)
    own, *sources = result["benches"]
    assert own["decides"]
    assert [line["name"] for line in sources] == ["sevens", "threes"]
    lifts = {line["name"]: line["lift"] for line in sources}
    assert own["lift"] == pytest.approx(0.75 * lifts["sevens"] + 0.25 * lifts["threes"])


def test_a_question_that_one_source_holds_out_trains_in_none(
    mixed: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
) -> None:
    again = _write(tmp_path / "again.jsonl", "7", "=")
    mixed["data"]["mix"][1]["source"] = again
    run = new_attempt(mixed)

    rl_run(open_newest(run))

    split = json.loads(run.split.read_bytes())
    asked = {name: {id_.partition("/")[2] for id_ in split[name]} for name in ("train", "select")}
    assert asked["train"]
    assert asked["train"].isdisjoint(asked["select"])


@pytest.mark.requirement("EX-22")
def test_a_loss_on_a_bench_is_in_the_sentence_of_a_gain(
    recipe: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """Sevens are learnt, and what random weights knew of threes is lost."""
    threes = _write(tmp_path / "threes.jsonl", "3", "+", rows=400)
    recipe |= {
        "max_steps": 12,
        "lr": 1e-2,
        "heldout": [{"name": "threes", "source": threes, "temp": 1.0, "every": 2}],
    }
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    own, bench = result["benches"]
    assert (own["verdict"], result["verdict"]) == ("gain", "gain")
    assert bench["verdict"] == "loss"
    assert bench["n"] == 400
    assert result["verdict_reason"].startswith("lost on threes (-")
    assert result["verdict_reason"].endswith("400 rows); 2 looked at")
    lost = bench["look_at"]["lost"]
    scored = {gate["step"] for gate in events(run, "gate") if gate["split"] == "threes"}
    assert {0, 4, 8, 12, result["selected_step"]} == scored | {result["selected_step"]}
    before, after = (
        {
            row["id"]: row["success"]
            for row in _scored(run.rollouts / f"heldout-threes-{s:06d}.jsonl")
        }
        for s in (0, result["selected_step"])
    )
    assert lost
    assert all(before[id_] and not after[id_] for id_ in lost)


@pytest.mark.requirement("EX-22")
def test_a_bench_that_decides_picks_with_one_half_and_is_reported_on_the_other(
    recipe: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """Training rows that it asks are taken out; the own held-out rows have a verdict of theirs."""
    bench = _write(tmp_path / "bench.jsonl", "7", "=", rows=60)
    recipe |= {
        "max_steps": 12,
        "lr": 1e-2,
        "heldout": [{"name": "bench", "source": bench}],
        "decide": "bench",
    }
    run = new_attempt(recipe)

    result = rl_run(open_newest(run))

    split = json.loads(run.split.read_bytes())
    halves = [*split["select"], *split["report"]]
    assert sorted(halves) == sorted(f"bench/={i}" for i in range(60))
    assert len(split["select"]) == 30
    assert not {f"bench/{id_.replace('q', '=')}" for id_ in split["train"]} & set(halves)
    assert result["report_n"] == 30
    bench_line, own_line = result["benches"]
    assert (bench_line["name"], bench_line["decides"]) == ("bench", True)
    assert (own_line["name"], own_line["kind"], own_line["n"]) == ("own", "own", 60)
    assert {g["split"] for g in events(run, "gate")} == {"select", "report", "own"}


@pytest.mark.requirement("EX-07")
def test_each_source_has_its_line_and_curve_where_a_bench_decides(
    mixed: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """All held-out rows of a source stand behind its line: they picked nothing."""
    bench = _write(tmp_path / "bench.jsonl", "7", "=x", rows=60)
    more = {"heldout": [{"name": "bench", "source": bench}], "decide": "bench", "max_steps": 4}
    run = new_attempt(mixed | more)

    result = rl_run(open_newest(run))

    lines = {line["name"]: line for line in result["benches"]}
    assert list(lines) == ["bench", "sevens", "threes", "own"]
    assert lines["sevens"]["n"] + lines["threes"]["n"] == lines["own"]["n"] == 120
    for side in ("before", "after", "lift"):
        mean = 0.75 * lines["sevens"][side] + 0.25 * lines["threes"][side]
        assert lines["own"][side] == pytest.approx(mean)
    assert lines["sevens"]["after"] != lines["threes"]["after"], "else any mean would do"
    gated = {gate["split"] for gate in events(run, "gate") if gate["step"] == 0}
    assert {"own", "sevens", "threes"} <= gated


@pytest.mark.requirement("EX-22")
def test_each_line_says_how_its_answers_were_read(
    mixed: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """Cut off, unread, and in which form: of the very rows that its score is of."""
    bench = _write(tmp_path / "bench.jsonl", "3", "-", rows=40)
    run = new_attempt(mixed | {"heldout": [{"name": "bench", "source": bench, "temp": 1.0}]})

    result = rl_run(open_newest(run))

    lines = {line["name"]: line for line in result["benches"]}
    gates = {(g["split"], g["step"]): g["values"] for g in events(run, "gate")}
    for name, split in (("own", "report"), ("bench", "bench")):
        for side, step in (("before", 0), ("after", result["selected_step"])):
            shares = lines[name][f"shares_{side}"]
            assert shares["unparsed"] == pytest.approx(lines[name][f"unread_{side}"])
            assert shares == {key: gates[split, step][key] for key in shares}
            assert {"truncated", "truncated/wrong"} & set(shares)
    rows = _scored(run.rollouts / "heldout-report-000000.jsonl")
    cut = [row["truncated"] for row in rows if row["id"].startswith("threes/")]
    assert lines["threes"]["shares_before"]["truncated"] == sum(cut) / len(cut)


@pytest.mark.requirement("EX-23")
def test_a_bench_is_judged_by_other_verifiers_at_the_gate_too(
    mixed: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """Each has a curve and a judgement on the very completions; the bench's own score stays."""
    bench = _write(tmp_path / "bench.jsonl", "3", "-", rows=40)
    heldout = {"name": "bench", "source": bench, "temp": 1.0, "also": ["gsm8k", "math"]}
    run = new_attempt(mixed | {"heldout": [heldout], "max_steps": 1})

    rl_run(open_newest(run))

    [first, *_] = [gate for gate in events(run, "gate") if gate["split"] == "bench"]
    rows = _scored(run.rollouts / "heldout-bench-000000.jsonl")
    solved = [row["judged"]["math"]["success"] for row in rows]
    assert first["values"]["as/math"] == sum(solved) / len(solved)
    unread = [row["judged"]["gsm8k"]["reason"] == "unparsed" for row in rows]
    assert first["values"]["as/gsm8k/unparsed"] == sum(unread) / len(unread)
    assert first["values"]["as/gsm8k"] == 0.0
    assert first["score"] == sum(row["success"] for row in rows) / len(rows)
    assert list(rows[0]["judged"]) == ["its run's judge", "gsm8k", "math"]
    assert "judged" not in _scored(run.rollouts / "heldout-select-000000.jsonl")[0]


@pytest.mark.requirement("EX-07")
def test_each_row_is_judged_by_the_verifier_of_its_source(
    mixed: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest, tmp_path: Path
) -> None:
    """By name for a source, or by a field of its rows."""
    rows = _write(tmp_path / "r.jsonl", json.dumps({"pattern": "3"}), "+", dataset="REGEX")
    mixed["data"]["mix"][1] |= {"source": rows, "verifier_field": "dataset"}
    run = new_attempt(mixed | {"max_steps": 1})

    rl_run(open_newest(run))

    for row in _scored(run.rollouts / "heldout-select-000000.jsonl"):
        wanted = "7" if row["id"].startswith("sevens/") else "3"
        assert row["success"] == (row["text"] == wanted)


def test_a_row_that_names_no_verifier_is_named(
    mixed: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    mixed["data"]["mix"][1] |= {"verifier_field": "dataset"}

    with pytest.raises(
        RLLoopError, match=r"data\.mix\.1\.verifier_field: row '\+0' has no such key"
    ):
        rl_run(open_newest(new_attempt(mixed)))


def test_a_run_with_benches_that_was_stopped_ends_as_if_it_had_not_been(
    mixed: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
) -> None:
    bench = _write(tmp_path / "bench.jsonl", "3", "-", rows=40)
    mixed |= {"heldout": [{"name": "bench", "source": bench, "every": 2}], "max_steps": 6}
    whole = rl_run(open_newest(new_attempt(mixed, name="whole")))
    polls = 0

    def soon() -> bool:
        nonlocal polls
        polls += 1
        return polls > 25

    run = new_attempt(mixed, name="stopped")
    with pytest.raises(Aborted), rl_hooks(should_abort=soon):
        rl_run(open_newest(run))
    again = rl_run(open_newest(new_attempt(mixed, name="stopped")))

    assert polls > 0
    assert again["benches"] == whole["benches"]
    assert again["heldout_scores"] == whole["heldout_scores"]


@pytest.mark.requirement("EX-22")
def test_a_run_says_what_of_its_benches_also_trains(
    recipe: dict[str, Any],
    tmp_path: Path,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """In the note as it begins, and in the line of each bench."""
    bench = _write(tmp_path / "bench.jsonl", "7", "=", rows=60)
    recipe |= {"max_steps": 1, "heldout": [{"name": "bench", "source": bench}]}
    told, decides = new_attempt(recipe, name="a"), new_attempt(recipe | {"decide": "bench"})

    [own, told_line] = rl_run(open_newest(told))["benches"]
    [line, _] = rl_run(open_newest(decides))["benches"]

    leaks = told_line["overlap"]["leaks"]
    assert leaks > 0
    assert (own["overlap"]["leaks"], line["overlap"]["removed"]) == (0, leaks)
    [said], [taken] = (
        [note["text"] for note in events(run, "note") if note["code"] == "OVERLAP"]
        for run in (told, decides)
    )
    assert said.startswith(f"you are training on a benchmark's test rows: {leaks} of the 60 rows")
    assert taken.startswith(f"{leaks} of 60 training rows are taken out")
    assert said.count("and training row") == 3
