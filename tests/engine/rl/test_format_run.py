"""The form of an answer, taught on the real loop with a real tiny model."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from engine.contract.sft_export import sft_rows, write_sft
from engine.rl import rl_run as entry

Rows = list[dict[str, Any]]


@pytest.fixture
def form_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """Two-character answers: `=7` has the form, a 7 alone is right in the wrong one."""
    return recipe | {
        "verifier": "regex",
        "max_new_tokens": 3,
        "max_steps": 6,
        "tasks_per_step": 12,
        "lr": 5e-3,
    }


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The expected answer is a pattern: the last group must be a 7."""
    path = tmp_path / "sevens.jsonl"
    answer = json.dumps({"pattern": "=(.)", "answer": "7"})
    rows = [{"id": f"q{i}", "prompt": f"{i:03d}", "answer": answer} for i in range(120)]
    path.write_text("".join(json.dumps(row | {"solution": "=7"}) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def ran(
    form_recipe: dict[str, Any], corpus: Path, new_attempt: Callable[..., RunDir], open_newest: Any
) -> Callable[..., tuple[RunDir, dict[str, Any]]]:
    """`ran(format={...})`: the whole run, and its result."""

    def run(**settings: Any) -> tuple[RunDir, dict[str, Any]]:
        directory = new_attempt(form_recipe | {"data": {"source": str(corpus)}} | settings)
        return directory, entry.run(open_newest(directory))

    return run


def rollouts(run: RunDir, name: str) -> dict[int, Rows]:
    """Of each step."""
    return {
        int(path.stem.rpartition("-")[2]): [json.loads(s) for s in path.read_text().splitlines()]
        for path in sorted(run.rollouts.glob(f"{name}-*.jsonl"))
    }


@pytest.mark.requirement("EX-06")
def test_form_alone_is_paid_at_first_and_no_longer_at_the_end(
    ran: Callable[..., tuple[RunDir, dict[str, Any]]],
) -> None:
    """In the rollouts of the run itself; the held-out gate never pays it."""
    run, _ = ran(format={"reward": 0.1, "reward_until": 3})

    paid = {
        step: {round(row["reward"], 4) for row in rows if 0 < row["reward"] < 1}
        for step, rows in rollouts(run, "train").items()
    }
    assert (paid[1], paid[2]) == ({0.1}, {0.0667})
    assert paid[4] == paid[5] == paid[6] == set()
    gated = [row for rows in rollouts(run, "heldout-select").values() for row in rows]
    assert {row["reward"] for row in gated} <= {0.0, 1.0}


@pytest.mark.requirement("EX-06")
def test_a_lenient_verifier_pays_less_with_every_step(
    ran: Callable[..., tuple[RunDir, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through an operator's own verifier that takes a 7 anywhere."""
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "tests.engine.rl.lenient_seven")
    run, _ = ran(format={"lenient": "tests.engine.rl.lenient_seven:seven", "lenient_until": 2})

    lenient = {
        step: {row["reward"] for row in rows if row["reason"] == "lenient"}
        for step, rows in rollouts(run, "train").items()
    }
    assert (lenient[1], lenient[2]) == ({1.0}, {0.5})
    assert lenient[3] == lenient[6] == set()


def test_the_pool_is_scored_as_held_out_is_while_leniency_fades(
    ran: Callable[..., tuple[RunDir, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 7 in another form is paid for at first and is never counted as solved."""
    monkeypatch.setenv("NIGHTLANE_REWARD_MODULES", "tests.engine.rl.lenient_seven")
    run, result = ran(format={"lenient": "tests.engine.rl.lenient_seven:seven"})

    rows = rollouts(run, "train")
    solved = {
        step: statistics.fmean(re.findall("=(.)", row["text"])[-1:] == ["7"] for row in found)
        for step, found in rows.items()
    }
    paid = statistics.fmean(row["reward"] >= 0.5 for row in rows[1])
    assert paid > solved[1]
    assert result["pool_scores"] == {str(step): pytest.approx(s) for step, s in solved.items()}


@pytest.mark.requirement("EX-06")
def test_examples_stand_before_early_prompts_and_not_before_the_gates(
    ran: Callable[..., tuple[RunDir, dict[str, Any]]],
) -> None:
    """By the ids that the model really read."""
    run, _ = ran(format={"shots": 2, "shots_until": 2})

    lengths = {
        step: {len(row["prompt_ids"]) for row in rows}
        for step, rows in rollouts(run, "train").items()
    }
    bare = {
        len(row["prompt_ids"]) for rows in rollouts(run, "heldout-select").values() for row in rows
    }
    assert bare == lengths[3] == lengths[6]
    assert min(lengths[1]) > min(lengths[2]) > max(bare)


@pytest.mark.requirement("EX-06")
def test_pre_trained_form_gives_right_completions_worth_exporting(
    ran: Callable[..., tuple[RunDir, dict[str, Any]]], tmp_path: Path
) -> None:
    """Before step 0 the form is there; what was right in it becomes fine-tuning data."""
    run, result = ran(format={"pretrain": {"rows": 16, "lr": 5e-3, "target": 0.8, "eval_every": 2}})

    assert result["upstream"]["sft_init"]["format_score"] >= 0.8
    first = rollouts(run, "train")[1]
    assert sum("=" in row["text"] for row in first) > len(first) / 2
    target = tmp_path / "sft.jsonl"
    count = write_sft(target, sft_rows(run, success_threshold=0.5, per_prompt=2))
    exported = [json.loads(line) for line in target.read_text().splitlines()]
    held_out = {row["id"] for rows in rollouts(run, "heldout-select").values() for row in rows}
    assert count == len(exported) > 0
    assert all("=7" in row["completion"] for row in exported)
    assert held_out.isdisjoint(row["id"] for row in exported)
