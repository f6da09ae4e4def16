"""Runs that go on from another run's checkpoint: which rows are held out, and what is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.registry import cautions, validate
from engine.contract.run_dir import RunDir, complete_checkpoints
from engine.rl.rl_run import run as rl_run
from tests.engine.conftest import OpenNewest

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.requirement("RL-04")
SHORT = {"max_steps": 1, "heldout_every": 1}


def parts(run: RunDir) -> dict[str, Any]:
    """Its split."""
    found: dict[str, Any] = json.loads(run.split.read_bytes())
    return found


@pytest.fixture
def first(recipe: dict[str, Any], new_attempt: NewAttempt, open_newest: OpenNewest) -> RunDir:
    """A run of one step."""
    run = new_attempt(recipe | SHORT, name="first")
    rl_run(open_newest(run))
    return run


def trained(run: RunDir) -> Path:
    """The model that it made."""
    return complete_checkpoints(run)[-1][1] / "model"


def test_runs_of_other_seeds_hold_out_the_same_rows_under_one_split_seed(
    recipe: dict[str, Any], first: RunDir, new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """So that they can be compared row by row; without one the run's own seed carves, as ever."""
    data = recipe["data"] | {"split_seed": 5}
    again = new_attempt(recipe | SHORT | {"seed": 6, "data": data}, name="again")
    other = new_attempt(recipe | SHORT | {"seed": 6}, name="other")
    for run in (again, other):
        rl_run(open_newest(run))

    assert parts(again) == parts(first)
    assert parts(other)["hash"] != parts(first)["hash"]


def test_held_out_rows_that_the_base_was_trained_on_are_told_before_and_counted_in_the_run(
    recipe: dict[str, Any],
    first: RunDir,
    new_attempt: NewAttempt,
    open_newest: OpenNewest,
    events: Events,
) -> None:
    """Another seed holds out other rows: the earlier run's training rows are among them."""
    raw = recipe | SHORT | {"base": str(trained(first)), "seed": 6}

    [caution] = cautions("rl_run", raw)
    run = new_attempt(raw, name="second")
    result = rl_run(open_newest(run))

    assert caution.field == "base"
    assert f"({first.root}: data.split_seed 5, here 6)" in caution.problem
    assert caution.remedy == "set data.split_seed: 5"
    heldout = {*parts(run)["select"], *parts(run)["report"]}
    seen = len(heldout & set(parts(first)["train"]))
    [alert] = result["alerts"]
    assert alert["code"] == "HELDOUT_SEEN"
    assert alert["text"].startswith(f"{seen} of 60 held-out rows were trained on by the run that")
    assert seen > 0
    assert "HELDOUT_SEEN" in {e["code"] for e in events(run, "note")}


def test_a_run_that_holds_out_the_same_rows_as_the_one_its_base_comes_from_is_silent(
    recipe: dict[str, Any], first: RunDir, new_attempt: NewAttempt, open_newest: OpenNewest
) -> None:
    """The remedy is one."""
    data = recipe["data"] | {"split_seed": 5}
    raw = recipe | SHORT | {"base": str(trained(first)), "seed": 6, "data": data}

    result = rl_run(open_newest(new_attempt(raw, name="second")))

    assert not cautions("rl_run", raw)
    assert result["alerts"] == []


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"heldout_frac": 0.6}, "set heldout_frac: 0.5"),
        ({"heldout_frac": 0.4}, None),
        ({"seed": 6, "heldout_frac": 0.6}, "set data.split_seed: 5 and heldout_frac: 0.5"),
    ],
)
def test_more_held_out_rows_than_before_were_training_rows_then(
    recipe: dict[str, Any], first: RunDir, changed: dict[str, Any], remedy: str | None
) -> None:
    """Fewer are the first of the same shuffle."""
    raw = recipe | {"base": str(trained(first))} | changed

    found = cautions("rl_run", raw)

    assert [one.remedy for one in found] == ([remedy] if remedy else [])


def test_another_corpus_or_another_place_tells_nothing(
    recipe: dict[str, Any], first: RunDir, tmp_path: Path
) -> None:
    """Ids of other rows mean nothing, and a copied model has no run around it."""
    copied = tmp_path / "elsewhere"
    shutil.copytree(trained(first), copied)
    lines = Path(recipe["data"]["source"]).read_text("utf-8")
    elsewhere = tmp_path / "rows.jsonl"
    elsewhere.write_text(lines)

    for raw in (
        recipe | {"base": str(copied), "seed": 6},
        recipe | {"base": str(trained(first)), "seed": 6, "data": {"source": str(elsewhere)}},
    ):
        assert not cautions("rl_run", raw)


def test_the_split_seed_is_the_runs_where_none_is_given() -> None:
    """Recorded runs are carved as they were."""
    configs = [
        validate("rl_run", {"base": "embedded:qwen3-tiny", "seed": 3, "data": data})
        for data in ({}, {"split_seed": 0})
    ]

    assert [c.split_seed for c in configs if isinstance(c, RLRunConfig)] == [3, 0]
