"""`eval_rerun` with benches: every checkpoint on every bench, the scores and what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.registry import validate
from engine.contract.run_dir import COMPLETE, ExitCode, RunDir
from engine.contract.scores import BenchScore

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]


def start(run: RunDir) -> int:
    return main(["run", str(run.root)])


def scores(run: RunDir, events: Events) -> list[BenchScore]:
    """Those that count after every resume."""
    found: list[Event] = []
    for event in events(run):
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = [one for one in found if kept is not None and one["step"] <= kept]
        elif event["type"] == "score":
            found.append(event)
    return [BenchScore.model_validate(one["score"]) for one in found]


def lines(run: RunDir, split: str, step: int) -> list[dict[str, Any]]:
    path = run.rollouts / f"heldout-{split}-{step:06d}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def trained(recipe: dict[str, Any], new_attempt: NewAttempt) -> RunDir:
    """A run with checkpoints of steps 0, 2, 4 and 6, each of which a gate scored."""
    run = new_attempt(recipe | {"keep_checkpoints": 10, "save_every": 2}, name="trained")
    assert start(run) == ExitCode.DONE
    return run


@pytest.fixture
def levels_file(tmp_path: Path) -> Path:
    path = tmp_path / "levels.jsonl"
    rows = [
        {"id": f"q{i}", "prompt": f"{i:03d}=", "answer": "7", "level": f"Level {1 + i % 2}"}
        for i in range(200, 240)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def asked(trained: RunDir, levels_file: Path) -> dict[str, Any]:
    """Three checkpoints of the run on two benches, one of them judged twice."""
    return {
        "base": str(trained.root),
        "checkpoints": [0, 4, 6],
        "benches": [
            {
                "name": "levels",
                "source": str(levels_file),
                "verifier": "exact",
                "also": ["gsm8k_flexible"],
                "max_new_tokens": 1,
                "by": ["level"],
            },
            {
                "name": "warm",
                "source": str(levels_file),
                "verifier": "exact",
                "limit": 10,
                "max_new_tokens": 1,
                "temp": 1.0,
                "samples": 4,
            },
        ],
        "rollout_batch": 16,
        "threads": 1,
    }


@pytest.mark.requirement("EX-13")
def test_every_checkpoint_is_scored_on_every_bench_by_every_filter_the_baseline_first(
    asked: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """Each with an interval, and the lines that it is the mean of."""
    run = new_attempt(asked, kind="eval_rerun")

    assert start(run) == ExitCode.DONE

    found = scores(run, events)
    plain = [one for one in found if one.bench == "levels"]
    assert [(one.checkpoint, one.step, one.filter) for one in plain] == [
        (f"step {step}", step, name) for step in (0, 4, 6) for name in ("exact", "gsm8k_flexible")
    ]
    for one in plain:
        told = [line["judged"][one.filter]["success"] for line in lines(run, "levels", one.step)]
        assert one.score == pytest.approx(sum(told) / 40)
        assert one.low <= one.score <= one.high
        assert (one.n, one.samples, one.run) == (40, 1, 1)
    assert plain[0].score < plain[-1].score
    assert len({one.bench_hash for one in plain}) == 1
    sampled = [one for one in found if one.bench == "warm"]
    assert [(one.step, one.k) for one in sampled] == [
        (s, k) for s in (0, 4, 6) for k in (1, 2, 3, 4)
    ]
    assert len({one.data_hash for one in found}) == 2


@pytest.mark.requirement("EX-18")
def test_a_score_is_told_by_level_and_by_what_the_baseline_solved(
    asked: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """The parts of each are all of its rows; the baseline itself has no bands."""
    run = new_attempt(asked, kind="eval_rerun")
    start(run)

    first, *_, last = [one for one in scores(run, events) if one.filter == "exact" and one.k == 1][
        :5
    ]
    assert {part.by for part in first.parts} == {"level"}
    by = {name: [p for p in last.parts if p.by == name] for name in ("level", "band")}
    assert [part.name for part in by["level"]] == ["Level 1", "Level 2"]
    assert sum(part.n for part in by["level"]) == sum(part.n for part in by["band"]) == 40
    assert by["band"][0].name == "0 to 0.1"


def test_the_frozen_rows_of_a_run_come_out_as_its_gates_scored_them(
    trained: RunDir, new_attempt: NewAttempt, events: Events
) -> None:
    """`run:` is the gate's score row for row, at every checkpoint, by the same random numbers."""
    config = {
        "base": str(trained.root),
        "checkpoints": "all",
        "benches": [{"run": str(trained.root), "part": "select", "name": "gate"}],
        "threads": 1,
    }
    run = new_attempt(config, kind="eval_rerun")

    assert start(run) == ExitCode.DONE

    gates = [event for event in events(trained, "gate") if event["split"] == "select"]
    found = scores(run, events)
    assert [(one.step, one.score) for one in found] == [(g["step"], g["score"]) for g in gates]
    assert [(one.low, one.high) for one in found] == [tuple(g["ci95"]) for g in gates]
    assert all(one.picked for one in found)
    for one in found:
        theirs = lines(trained, "select", one.step)
        ours = lines(run, "gate", one.step)
        told = ("id", "text", "completion_ids", "success", "reason", "truncated")
        assert [{k: row[k] for k in told} for row in ours] == [
            {k: row[k] for k in told} for row in theirs
        ]


def test_models_that_no_run_trained_are_told_apart_by_their_names(
    base_folder: Path, levels_file: Path, trained: RunDir, new_attempt: NewAttempt, events: Events
) -> None:
    """A folder first, then what a run published: steps of different runs never share a file."""
    config = {
        "base": str(base_folder),
        "checkpoints": [str(base_folder), str(trained.checkpoint(6)), str(trained.checkpoint(4))],
        "benches": [{"source": str(levels_file), "verifier": "exact", "max_new_tokens": 1}],
    }
    run = new_attempt(config, kind="eval_rerun")

    assert start(run) == ExitCode.DONE

    found = scores(run, events)
    assert [one.checkpoint for one in found] == [base_folder.name, "run 1 step 6", "run 1 step 4"]
    assert [one.step for one in found] == [0, 1, 2]
    assert [one.base for one in found] == [str(base_folder)] * 3


def test_checkpoints_that_are_named_need_no_base(base_folder: Path, trained: RunDir) -> None:
    """The first one is it; for steps the run must be named."""
    named = [str(base_folder), str(trained.checkpoint(6))]
    sums = {"source": "embedded:word_problems", "verifier": "gsm8k"}
    with_base = validate("eval_rerun", {"base": named[0], "checkpoints": named, "benches": [sums]})

    assert validate("eval_rerun", {"checkpoints": named, "benches": [sums]}) == with_base
    for steps in ("all", [0, 4]):
        said = refused({"checkpoints": steps, "benches": [sums]})
        assert said.startswith("base: is missing, and checkpoints are steps of the run")


def test_what_is_resolved_is_resolved_no_further(asked: dict[str, Any]) -> None:
    """A resumed attempt and a clone read the config as it was written down."""
    once = validate("eval_rerun", asked).model_dump(mode="json")

    assert validate("eval_rerun", once).model_dump(mode="json") == once


def refused(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate("eval_rerun", config)
    return str(caught.value)


def bench(**said: Any) -> dict[str, Any]:
    return {"base": "embedded:qwen3-tiny", "benches": [said]}


def test_a_torn_checkpoint_is_refused_by_name(asked: dict[str, Any], trained: RunDir) -> None:
    """Its writer died; the whole ones are named."""
    (trained.checkpoint(4) / COMPLETE).unlink()

    assert "has no step 4: whole checkpoints of" in refused(asked)
    alone = asked | {"base": str(trained.checkpoint(4)), "checkpoints": []}
    said = refused(alone)
    assert said.startswith("base: ")
    assert "step-000004 is torn" in said
    assert "are of steps 0, 2, 6" in said


def test_an_unknown_task_names_the_nearest(levels_file: Path) -> None:
    """One letter off."""
    assert "gsm8k_cot" in refused(bench(task="gsm8k_cto", source=str(levels_file)))


def test_a_bench_without_rows_is_refused(tmp_path: Path) -> None:
    """Named, and a file that is not there too."""
    (tmp_path / "none.jsonl").touch()

    assert "name its file with source" in refused(bench(name="mine", verifier="exact"))
    assert "none.jsonl" in refused(bench(source=str(tmp_path / "none.jsonl"), verifier="exact"))
    assert "gone.jsonl" in refused(bench(source=str(tmp_path / "gone.jsonl"), verifier="exact"))


def test_rows_with_one_id_twice_are_refused(tmp_path: Path) -> None:
    """Their completions could not be told apart."""
    rows = [{"id": "a", "prompt": f"{i}=", "answer": "7"} for i in range(2)]
    path = tmp_path / "twice.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    assert "'a'" in refused(bench(source=str(path), verifier="exact"))


def test_worked_examples_are_never_the_rows_that_are_asked(levels_file: Path) -> None:
    """The test file as the file of examples."""
    config = bench(source=str(levels_file), verifier="exact", shots=2, shots_from=str(levels_file))

    assert "would show its own test rows" in refused(config)


def test_two_benches_never_share_a_file(levels_file: Path) -> None:
    """Of one name, or of one source at one number of shots."""
    one = {"source": str(levels_file), "verifier": "exact"}

    said = refused({"base": "embedded:qwen3-tiny", "benches": [one, one]})

    assert "'levels' twice" in said


def test_settings_of_the_rows_of_data_are_refused_beside_benches(asked: dict[str, Any]) -> None:
    """A temperature that no bench reads."""
    assert "does nothing beside benches" in refused(asked | {"temp": 0.3})


def test_a_bench_file_holds_all_but_its_rows(
    tmp_path: Path, levels_file: Path, base_folder: Path
) -> None:
    """What is said beside it goes first; a broken file is named."""
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nverifier: exact\nmax_new_tokens: 3\nby: [level]\n", "utf-8")
    config = {
        "base": str(base_folder),
        "benches": [{"bench": str(file), "source": str(levels_file), "max_new_tokens": 1}],
    }

    found: Any = validate("eval_rerun", config)

    assert (found.benches[0].name, found.benches[0].max_new_tokens) == ("mine", 1)
    assert found.benches[0].by == ["level"]
    file.write_text("name: [mine\n", "utf-8")
    assert "mine.yaml" in refused(config)


def test_the_rows_of_a_mixture_or_of_a_deciding_bench_come_out_as_gates_scored_them(
    recipe: dict[str, Any],
    sevens_file: Path,
    levels_file: Path,
    new_attempt: NewAttempt,
    events: Events,
) -> None:
    """Weighted over sources, or with the bench's own temperature and limit."""
    parts = [
        {"name": "a", "source": str(sevens_file), "weight": 3, "verifier": "exact"},
        {"name": "b", "source": str(levels_file), "weight": 1, "verifier": "exact"},
    ]
    bench = {"name": "last", "source": str(levels_file), "verifier": "exact", "temp": 1.0}
    bench |= {"max_new_tokens": 2}
    own = {key: value for key, value in recipe.items() if key != "data"}
    for name, settings in (
        ("mixed", {"data": {"mix": parts}}),
        ("decided", {"data": recipe["data"], "heldout": [bench], "decide": "last"}),
    ):
        theirs = new_attempt(own | settings | {"max_steps": 2, "save_every": 2}, name=name)
        assert start(theirs) == ExitCode.DONE
        asks = {"run": str(theirs.root), "part": "select", "name": "gate"}
        config = {"base": str(theirs.root), "checkpoints": "all", "benches": [asks], "threads": 1}
        run = new_attempt(config, kind="eval_rerun", name=f"{name}-eval")

        assert start(run) == ExitCode.DONE

        gates = [event for event in events(theirs, "gate") if event["split"] == "select"]
        found = scores(run, events)
        assert [(one.step, one.score) for one in found] == [(g["step"], g["score"]) for g in gates]
        assert [(one.low, one.high) for one in found] == [tuple(g["ci95"]) for g in gates]


def test_two_benches_of_one_task_have_their_own_rows(
    base_folder: Path, levels_file: Path, new_attempt: NewAttempt, events: Events
) -> None:
    """Names are alike; the numbers of rows are not."""
    rows = {"source": str(levels_file), "verifier": "exact", "max_new_tokens": 1, "shots": 0}
    config = {
        "base": str(base_folder),
        "benches": [rows | {"name": "few", "limit": 5}, rows | {"name": "more", "limit": 9}],
    }
    run = new_attempt(config, kind="eval_rerun")

    assert start(run) == ExitCode.DONE

    assert [(one.bench, one.n) for one in scores(run, events)] == [("few", 5), ("more", 9)]
