"""A task through the run's sampler and through lm-evaluation-harness itself, in one job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.evaluate.benches import EvalBench, limit_of
from engine.contract.events import Event
from engine.contract.run_dir import ExitCode, RunDir
from engine.contract.scores import BenchScore
from tests.engine.evaluate.harness.chain_model import chain_policy

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "gsm8k.jsonl"
    found = [
        {"question": f"What is {i} and 9?", "answer": f"{i} + 9 = {i + 9}\n#### {i + 9}"}
        for i in range(8, 11)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), "utf-8")
    return str(path)


def evaluated(
    chain: str, bench: dict[str, Any], tmp_path: Path, new_attempt: NewAttempt, events: Events
) -> tuple[list[BenchScore], list[list[dict[str, Any]]]]:
    """Scores and stored lines, the run's own first."""
    policy, base = chain_policy(chain, window=8192), tmp_path / "base"
    policy.model.save_pretrained(base)
    policy.tokenizer.save_pretrained(base)
    ours = {**bench, "name": "ours"}
    theirs = {**bench, "name": "theirs", "runner": "harness"}
    raw = {"base": str(base), "benches": [ours, theirs], "threads": 1}
    run = new_attempt(raw, kind="eval_rerun")

    assert main(["run", str(run.root)]) == ExitCode.DONE

    found = [BenchScore.model_validate(event["score"]) for event in events(run, "score")]
    files = [next(run.rollouts.glob(f"heldout-{name}-*.jsonl")) for name in ("ours", "theirs")]
    lines = [[json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files]
    return found, lines


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("chain", [": 18.Q:", ": 18"])
def test_both_runners_give_the_same_scores_item_by_item(
    chain: str, rows: str, tmp_path: Path, new_attempt: NewAttempt, events: Events
) -> None:
    """Prompt ids, text, each filter's judgement, and the shares made of them."""
    bench = {"task": "gsm8k_cot", "source": rows, "shots": 2}

    found, (own, theirs) = evaluated(chain, bench, tmp_path, new_attempt, events)

    assert [(one.bench, one.runner, one.filter) for one in found] == [
        (name, runner, one)
        for name, runner in (("ours", "own"), ("theirs", "harness"))
        for one in ("strict-match", "flexible-extract")
    ]
    for ours, told in zip(found[:2], found[2:], strict=True):
        assert (ours.score, ours.truncated, ours.n) == (told.score, told.truncated, told.n)
        assert (ours.max_new_tokens, told.max_new_tokens) == (1024, 1024)
    assert (found[1].score, found[3].version) == (1 / 3, "0.4.13")
    for mine, line in zip(own, theirs, strict=True):
        for name in ("id", "prompt", "prompt_ids", "text", "gold", "judged", "finish_reason"):
            assert mine[name] == line[name]


@pytest.mark.requirement("EX-12")
def test_what_never_ends_is_cut_at_the_limit_of_the_table_by_both(
    rows: str, tmp_path: Path, new_attempt: NewAttempt, events: Events
) -> None:
    """1024 tokens of gsm8k, counted as truncated."""
    bench = {"task": "gsm8k_cot", "source": rows, "shots": 0, "limit": 1}

    found, files = evaluated(": 11", bench, tmp_path, new_attempt, events)

    assert [one.truncated for one in found] == [1.0] * 4
    assert [one.ended_n for one in found] == [0] * 4
    for [line] in files:
        assert len(line["completion_ids"]) == 1024
        assert line["finish_reason"] == "length"


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize(
    ("task", "limit"),
    [
        ("gsm8k", 1024),
        ("gsm8k_cot", 1024),
        ("minerva_math", 2048),
        ("hendrycks_math", 2048),
        ("ifeval", 4096),
        ("mbpp", 1024),
        ("humaneval", 1024),
    ],
)
@pytest.mark.parametrize("runner", ["own", "harness"])
def test_a_bench_has_the_limit_of_its_task(task: str, limit: int, runner: str, rows: str) -> None:
    """Whatever the evaluation's own is."""
    bench = EvalBench.model_validate(
        {"task": task, "source": rows, "runner": runner, "shots_from": None, "shots": 0}
    )

    assert limit_of(bench, 16) == limit
