"""What holds of every kind of job: its events, its stop, its resume, its checkpoints."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.events import Event, Progress
from engine.contract.registry import get_kind, kinds, validate
from engine.contract.run_dir import (
    COMPLETE,
    Abort,
    AbortReason,
    ExitCode,
    InputFile,
    RunDir,
    complete_checkpoints,
)
from engine.run import checkpoint
from engine.run.proof import Check, Measured
from engine.run.session import Attempt
from engine.run.warmup import SFTSchedule
from engine.stage2.embedded import shapes
from tests.engine.conftest import add_attempt

Events = Callable[..., list[Event]]
NewAttempt = Callable[[], RunDir]

_RECIPES = {
    "counting": "counting_recipe",
    "eval_rerun": "eval_recipe",
    "requant": "requant_recipe",
    "rl_run": "recipe",
    "rollout_matching_sft": "matching_recipe",
    "stage2_ab": "ab_recipe",
}


@pytest.fixture(params=sorted(_RECIPES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def next_attempt(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> NewAttempt:
    """Adds an attempt to one run of the kind."""
    recipe: dict[str, Any] = request.getfixturevalue(_RECIPES[kind])
    return lambda: add_attempt(tmp_path, recipe, kind=kind)


Own = Callable[[], tuple[NewAttempt, Path, Path]]


@pytest.fixture
def own(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Own:
    """Attempts of a run on a model and data of its own, and the weights and rows it reads."""
    recipe: dict[str, Any] = copy.deepcopy(request.getfixturevalue(_RECIPES[kind]))
    if kind == "counting":
        model, rows = Path(recipe["model"]), Path(recipe["rows"])
        recipe |= {"model": str(tmp_path / "model"), "rows": str(tmp_path / "data" / rows.name)}
    elif kind in {"rl_run", "eval_rerun"}:
        model, rows = Path(recipe["base"]), Path(recipe["data"]["source"])
        recipe["base"] = str(tmp_path / "model")
        recipe["data"]["source"] = str(tmp_path / "data" / rows.name)
    elif kind == "requant":
        model, rows = Path(recipe["base"]), Path(recipe["bench"]["source"])
        recipe["base"] = str(tmp_path / "model")
        recipe["bench"]["source"] = str(tmp_path / "data" / rows.name)
    else:
        model, rows = Path(recipe["model"]["path"]), Path(recipe["data"]["train_jsonl"])
        recipe["model"]["path"] = str(tmp_path / "model")
        copied = str(tmp_path / "data" / rows.name)
        recipe["data"]["train_jsonl"] = recipe["data"]["val_jsonl"] = copied
    shutil.copytree(model, tmp_path / "model")
    shutil.copytree(rows.parent, tmp_path / "data")
    return lambda: (
        lambda: add_attempt(tmp_path, recipe, kind=kind),
        tmp_path / "model" / "model.safetensors",
        tmp_path / "data" / rows.name,
    )


def other_weights(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def other_rows(path: Path) -> None:
    """Still rows that can be trained on, taught otherwise."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["solution"] = "It is 7."
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def start(run: RunDir) -> int:
    return main(["run", str(run.root)])


def complete(run: RunDir) -> set[Path]:
    return {marker.parent for marker in run.checkpoints.glob(f"*/{COMPLETE}")}


def series(events: list[Event]) -> dict[tuple[str, int], float]:
    """Every measured value that still counts, times left out: they differ each time."""
    found: dict[tuple[str, int], float] = {}
    for event in events:
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = {k: v for k, v in found.items() if kept is not None and k[1] <= kept}
        elif event["type"] == "metric":
            found |= {
                (name, event["step"]): value
                for name, value in event["values"].items()
                if not name.startswith(("time/", "mem/")) and "per_s" not in name
            }
    return found


def test_every_registered_kind_is_under_this_suite() -> None:
    """A new kind cannot be forgotten here."""
    assert set(_RECIPES) == set(kinds())


def test_a_run_begins_with_started_and_ends_with_finished(
    next_attempt: NewAttempt, events: Events
) -> None:
    """One sequence of numbers, one attempt, phases said, the result last, exit status 0."""
    run = next_attempt()

    assert start(run) == ExitCode.DONE

    seen = events(run)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert {event["attempt"] for event in seen} == {1}
    assert [e["resumed_from"] for e in seen if e["type"] == "started"] == [None]
    assert seen[-1]["type"] == "finished"
    assert seen[-1]["status"] == "done"
    assert seen[-1]["result"]["aborted"] is False
    phases = [e["phase"] for e in seen if e["type"] == "progress" and "phase" in e]
    assert phases[0] == "lane-bringup"
    assert phases[-1] == "teardown"
    assert {"training", "sampling"}.intersection(phases)


def test_every_checkpoint_that_stands_is_whole_and_the_best_is_published(
    next_attempt: NewAttempt, events: Events
) -> None:
    """Hashes fit, each was told in an event, `selected` is one of them, the run card is there."""
    run = next_attempt()
    start(run)
    warned: list[str] = []

    standing = complete(run)

    assert standing
    for folder in standing:
        assert checkpoint.verified(folder, lambda code, _: warned.append(code)) is not None
    told = {run.root / event["path"] for event in events(run, "checkpoint")}
    assert standing <= told
    assert run.selected.resolve() in {folder.resolve() for folder in standing}
    assert json.loads(run.lineage.read_bytes())["current_best"] is not None
    assert warned == []


def test_a_stopped_run_says_so_and_goes_on_where_it_was(
    next_attempt: NewAttempt, events: Events, tmp_path: Path
) -> None:
    """Exit status 75 with a whole checkpoint; the next attempt measures what one run would."""
    run = next_attempt()
    run.attempt(1).request_abort(Abort(reason=AbortReason.OPERATOR))

    assert start(run) == ExitCode.ABORTED

    assert events(run)[-1]["status"] == "aborted"
    assert events(run)[-1]["result"]["aborted"] is True
    next_attempt()
    assert start(run) == ExitCode.DONE
    broken = events(run)
    assert {event["attempt"] for event in broken} == {1, 2}
    whole = RunDir(tmp_path / "whole")
    (whole.root / "attempts").mkdir(parents=True)
    (run.root / "attempts" / "001").rename(whole.root / "attempts" / "001")
    (whole.attempt(1).abort).unlink()
    assert start(whole) == ExitCode.DONE
    assert series(broken) == series(events(whole))


def test_no_more_checkpoints_stand_than_are_kept(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The last ones, the first and the best; `selected` never points at one that went. Those of a
    `requant` are what it is for: all of them are kept.
    """
    recipe: dict[str, Any] = request.getfixturevalue(_RECIPES[kind])
    if kind != "requant":
        recipe = recipe | {"keep_checkpoints": 1}
    run = add_attempt(tmp_path, recipe, kind=kind)

    assert start(run) == ExitCode.DONE

    standing = {step: folder.resolve() for step, folder in complete_checkpoints(run)}
    assert 0 in standing
    assert len(standing) <= 3
    assert run.selected.resolve() in standing.values()


def test_a_damaged_checkpoint_is_said_and_passed_over(
    next_attempt: NewAttempt, events: Events
) -> None:
    """The run goes on from the one before it, or from the beginning, and comes to its end."""
    run = next_attempt()
    run.attempt(1).request_abort(Abort(reason=AbortReason.OPERATOR))
    assert start(run) == ExitCode.ABORTED
    _, newest = complete_checkpoints(run)[-1]
    harmed = next(path for path in sorted(newest.rglob("*.*")) if path.name != COMPLETE)
    harmed.write_bytes(b"harmed")

    next_attempt()

    assert start(run) == ExitCode.DONE
    assert "CHECKPOINT_CORRUPT" in {note["code"] for note in events(run, "note")}


@pytest.mark.parametrize("changed", ["model", "data"])
def test_a_run_does_not_go_on_with_another_model_or_other_rows(
    changed: str, own: Own, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused as often as it is tried, with what to do; as things were, it goes on. A step 0
    that was not proven yet is nothing to go on from: the run is stopped after its proof.
    """
    next_attempt, weights, rows = own()
    run = next_attempt()
    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "should_abort", lambda it: it.run.proof.exists())
        assert start(run) == ExitCode.ABORTED
    path = weights if changed == "model" else rows
    before = path.read_bytes()
    (other_weights if changed == "model" else other_rows)(path)

    for _ in range(2):
        next_attempt()
        assert start(run) == ExitCode.CONFIG
        said = events(run, "note")[-1]["text"]
        assert "this run" in said
        assert "restore the data file" in said or "cockpit retry 1 --fresh" in said
        assert str(path) in said or "data.source" in said

    path.write_bytes(before)
    next_attempt()
    assert start(run) == ExitCode.DONE


def test_a_run_without_a_checkpoint_begins_anew_with_what_stands_there_now(own: Own) -> None:
    """Nothing of the earlier model is in it; what it began with is written down again."""
    next_attempt, weights, _ = own()
    run = next_attempt()
    run.root.mkdir(exist_ok=True)
    run.inputs.write_text(json.dumps({"files": {str(weights): "another"}}))

    assert start(run) == ExitCode.DONE

    assert json.loads(run.inputs.read_bytes())["files"][str(weights)] != "another"


@pytest.mark.parametrize("damaged", [b"", b'{"trials": 3}', None])
def test_a_run_goes_on_when_a_file_of_its_own_is_damaged(
    next_attempt: NewAttempt, events: Events, damaged: bytes | None
) -> None:
    """After a full disk or a power cut: made anew from what else stands in the run directory."""
    run = next_attempt()
    job = run.attempt(1).read_job()
    read = get_kind(job.kind).inputs(validate(job.kind, job.config))
    told = job.model_copy(update={"inputs": [InputFile.of(path) for path in read]})
    run.attempt(1).job_file.write_text(told.model_dump_json())
    start(run)
    before = events(run)[-1]["result"]
    names = ("lineage.json", "report.json", "inputs.json", "split.json")
    standing = [run.root / name for name in names if (run.root / name).exists()]
    for path in standing:
        path.unlink()
        if damaged is None:
            os.mkfifo(path)
        else:
            path.write_bytes(damaged)
    next_attempt()

    assert start(run) == ExitCode.DONE

    after = events(run)[-1]["result"]
    assert after["n_steps"] == before["n_steps"]
    assert after.get("selected_step") == before.get("selected_step")
    codes = {event["code"] for event in events(run, "note") if event["attempt"] == 2}
    for path in standing:
        assert path.name == "split.json" or f"{path.stem.upper()}_REBUILT" in codes
        if path.name != "inputs.json":
            assert json.loads(path.read_bytes()), path


def test_an_empty_file_of_a_checkpoint_is_passed_over_for_an_older_one(
    next_attempt: NewAttempt, events: Events
) -> None:
    """Its marker or any file of it, the state of the loop included."""
    run = next_attempt()
    start(run)
    newest = complete_checkpoints(run)[-1]
    for path in newest[1].rglob("*.json"):
        path.write_bytes(b"")
    next_attempt()

    assert start(run) == ExitCode.DONE

    begun = [e["resumed_from"] for e in events(run, "started")]
    assert begun[0] is None
    assert begun[1] is None or begun[1] < newest[0]


_PHASES = {
    "counting": {"training"},
    "eval_rerun": {"sampling"},
    "requant": {"sampling"},
    "rl_run": {"warmup", "sampling", "training", "heldout-gate"},
    "rollout_matching_sft": {"warmup", "training", "heldout-gate"},
    "stage2_ab": {"warmup", "training", "heldout-gate"},
}
"""Those of many passes; Channel-B's rollouts are part of a stage-2 step."""


@pytest.fixture
def every_phase(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A recipe with a warm-up and a report."""
    recipe: dict[str, Any] = copy.deepcopy(request.getfixturevalue(_RECIPES[kind]))
    if kind == "rl_run":
        recipe["warmup"] = {"target_heldout": 0.001, "batch_size": 8, "eval_every": 2}
    elif kind in {"rollout_matching_sft", "stage2_ab"}:
        style = shapes.Style(most_objects=1)
        drawn = shapes.write(tmp_path / "report", "report", shapes.distinct(2, 99, style), style)
        recipe["data"]["report_jsonl"] = str(drawn)
        recipe |= {"warmup": {"eval_every": 2, "batch_size": 4}, "report_min": 1}
        taught = lambda **said: SFTSchedule(**said | {"target": 0.0})  # noqa: E731
        monkeypatch.setattr("engine.stage2.warmup.SFTSchedule", taught)
    return recipe


@pytest.mark.requirement("LN-15")
def test_every_phase_says_from_inside_that_it_works(
    kind: str,
    every_phase: dict[str, Any],
    tmp_path: Path,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bare `progress` wherever nothing else was written for long; here long is no time at all."""
    monkeypatch.setattr("engine.run.session.SIGN_OF_LIFE_S", 0.0)
    run = add_attempt(tmp_path, every_phase, kind=kind)

    assert start(run) == ExitCode.DONE

    phase, works = "", set()
    for event in events(run, "progress"):
        phase = event.get("phase", phase)
        if not {*event} & set(Progress.__annotations__):
            works.add(phase)
    assert works - {"lane-bringup"} == _PHASES[kind]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Measured], None]:
    """From here on every check of every kind comes to this."""

    def come_to(found: Measured) -> None:
        class Changed(Check):
            def __init__(self, name: str, says: str, remedy: str, _: object) -> None:
                super().__init__(name, says, remedy, lambda: found)

        for folder in ("rl", "stage2", "eval_rerun", "requant"):
            monkeypatch.setattr(f"engine.{folder}.proof.Check", Changed)
        monkeypatch.setattr("engine.contract.kinds.counting.Check", Changed)

    return come_to


@pytest.mark.requirement("RL-18")
def test_what_a_run_measures_before_step_one_is_in_its_notes_and_on_its_card(
    next_attempt: NewAttempt, events: Events
) -> None:
    """Once: an attempt that goes on says no more, and its card keeps the figures."""
    run = next_attempt()
    run.attempt(1).request_abort(Abort(reason=AbortReason.OPERATOR))
    start(run)
    next_attempt()
    assert start(run) == ExitCode.DONE
    proof = json.loads(run.lineage.read_bytes())["proof"]
    next_attempt()

    assert start(run) == ExitCode.DONE

    assert proof
    assert all(found["figure"] <= found["limit"] for found in proof.values())
    assert json.loads(run.lineage.read_bytes())["proof"] == proof
    notes = [note["text"] for note in events(run, "note") if note["code"] == "PROOF"]
    assert len(notes) == 1
    assert notes[0].startswith("before step 1: ")


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize("figure", [0.25, math.nan])
def test_a_check_that_does_not_hold_ends_the_run_before_its_first_step(
    next_attempt: NewAttempt,
    events: Events,
    measured: Callable[[Measured], None],
    monkeypatch: pytest.MonkeyPatch,
    figure: float,
) -> None:
    """By name, with figure, limit and remedy; a retry is checked again until it holds."""
    run = next_attempt()
    measured(Measured(figure, 0.125))

    for attempt in (1, 2):
        assert start(run) == ExitCode.DECLINED

        end = events(run)[-1]
        assert (end["status"], end["result"]["cause"]) == ("declined", "PROOF_FAILED")
        assert f"{figure:.3g}, which may be at most 0.125; " in end["result"]["error"]
        assert not any(event["type"] == "metric" for event in events(run))
        assert [e["attempt"] for e in events(run, "finished")] == [*range(1, attempt + 1)]
        next_attempt()
    monkeypatch.undo()
    measured(Measured(0.1, 0.125))

    assert start(run) == ExitCode.DONE


@pytest.mark.requirement("RL-18")
def test_a_damaged_proof_is_said_and_keeps_no_run_from_going_on(
    next_attempt: NewAttempt, events: Events
) -> None:
    """Its figures stand in the notes alone then."""
    run = next_attempt()
    start(run)
    run.proof.write_bytes(b"[")
    next_attempt()

    assert start(run) == ExitCode.DONE

    assert "PROOF_LOST" in {note["code"] for note in events(run, "note")}
