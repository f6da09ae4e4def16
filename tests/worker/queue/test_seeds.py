"""`seeds: [0, 1, 2]`: a run of each seed over the same held-out rows, through every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.registry import get_kind, validate
from worker.db.connection import Database
from worker.queue.submission import submission
from worker.queue.sweeps import submit_sweep
from worker.queue.tried import fingerprint
from worker.read import jobs

pytestmark = pytest.mark.requirement("EX-24")

CONFIG: dict[str, Any] = {"base": "embedded:qwen3-tiny", "tuning": "full", "max_steps": 2}


def asked(**more: Any) -> dict[str, Any]:
    return {"kind": "rl_run", "config": CONFIG, **more}


def group_of(kind: str = "rl_run", **config: Any) -> str | None:
    known = get_kind(kind)
    return fingerprint(known, validate(kind, CONFIG | config)).group


def test_seeds_are_a_sweep_over_the_seed_with_one_split(db: Database) -> None:
    """The split's seed is the first one, and the sweep says so."""
    made = submit_sweep(db, submission(asked(seeds=[3, 1, 2])), actor="test")

    found = [jobs.get_job(db, number).config for number in made.job_ids]
    assert [config["seed"] for config in found] == [3, 1, 2]
    assert {config["data"]["split_seed"] for config in found} == {3}
    assert jobs.get_sweep(db, made.sweep_id).axes == {"data.split_seed": [3], "seed": [3, 1, 2]}


def test_a_split_seed_that_is_said_is_kept() -> None:
    """In the config, or as an axis of the sweep beside them."""
    said = submission(asked(config={**CONFIG, "data": {"split_seed": 0}}, seeds=[3, 4]))
    swept = submission(asked(sweep={"data.split_seed": [7]}, seeds=[3, 4]))

    assert said.sweep == {"seed": [3, 4]}
    assert swept.sweep == {"data.split_seed": [7], "seed": [3, 4]}


def test_seeds_stand_in_the_config_or_beside_it_and_join_a_sweep() -> None:
    """As a file has them at its top level; the same request either way."""
    inside = submission(asked(config={**CONFIG, "seeds": [0, 1]}, sweep={"lr": [1e-4, 1e-5]}))
    beside = submission(asked(seeds=[0, 1], sweep={"lr": [1e-4, 1e-5]}))

    assert inside.sweep == {"lr": [1e-4, 1e-5], "data.split_seed": [0], "seed": [0, 1]}
    assert inside.body_hash() == beside.body_hash()


def test_a_kind_whose_rows_do_not_follow_its_seed_has_no_split_axis() -> None:
    """The seed's name is the kind's own."""
    wanted = submission({"kind": "stage2_ab", "config": {}, "seeds": [1, 2]})

    assert wanted.sweep == {"training.seed": [1, 2]}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"seeds": 3}, "seeds: is no list of whole numbers (got 3); write seeds: [0, 1, 2]"),
        ({"seeds": []}, "seeds: is no list of whole numbers"),
        ({"seeds": [0, "1"]}, "seeds: is no list of whole numbers"),
        ({"seeds": [0, True]}, "seeds: is no list of whole numbers"),
        ({"seeds": [0, 1, 0]}, "seeds: has a seed twice"),
        ({"seeds": [0, 1], "sweep": {"seed": [2]}}, "seeds: stand beside a sweep over seed"),
        ({"seeds": [0], "config": {"seeds": [1]}}, "seeds: stand twice"),
        ({"seeds": [0, 1], "kind": "tally", "config": {}}, "kind tally has no seed"),
        ({"seeds": [0, 1], "kind": "rl_rum"}, "rl_rum"),
    ],
)
def test_what_is_no_list_of_seeds_is_refused_by_name(
    tally: Callable[..., int], more: dict[str, Any], words: str
) -> None:
    """Before anything is queued."""
    with pytest.raises(ConfigError) as refusal:
        submission(asked(**more))

    assert words in str(refusal.value)


def test_a_seed_that_a_run_refuses_and_more_than_a_sweep_has_are_refused(db: Database) -> None:
    """By the sweep's own rules: nothing is written."""
    with pytest.raises(
        ConfigError, match=r"greater than or equal to 0 at data.split_seed=0 seed=-1"
    ):
        submit_sweep(db, submission(asked(seeds=[0, -1])), actor="test")
    with pytest.raises(ConfigError, match="has more than 500 combinations"):
        submit_sweep(db, submission(asked(seeds=list(range(501)))), actor="test")

    assert jobs.list_jobs(db) == []


def test_runs_that_differ_in_seed_alone_are_one_group() -> None:
    """Also one whose split follows from the seed that the others name, and one that saves more."""
    group = group_of(seed=1, data={"split_seed": 0})

    assert group_of(seed=2, data={"split_seed": 0}) == group
    assert group_of(seed=0) == group
    assert group_of(seed=1, data={"split_seed": 0}, save_every=1) == group


def test_other_settings_or_other_held_out_rows_are_another_group() -> None:
    """Two seeds without one split hold out other rows each: no group."""
    group = group_of(seed=1, data={"split_seed": 0})

    assert group_of(seed=1) != group
    assert group_of(seed=2) != group_of(seed=1)
    assert group_of(seed=1, data={"split_seed": 0}, lr=1e-4) != group


def test_other_content_of_the_data_is_another_group(tmp_path: Path) -> None:
    """By hand on another night, after the file was written anew."""
    rows = tmp_path / "rows.jsonl"

    def hashed(text: str) -> str | None:
        rows.write_text("".join(f'{{"prompt": "{i}", "answer": "{text}"}}\n' for i in range(200)))
        data = {"source": str(rows), "split_seed": 0}
        return group_of(base="Qwen/Qwen2.5-0.5B", seed=1, data=data)

    assert hashed("1") == hashed("1") != hashed("2")
