"""A task run by lm-evaluation-harness over a policy that is loaded."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
import torch

from engine.contract import verifiers
from engine.contract.errors import RLLoopError
from engine.contract.task_rows import TaskRowError
from engine.contract.tasks import TASKS, harness_problem
from engine.data.rows import Question
from engine.evaluate.harness.results import Answer, HarnessResult
from engine.evaluate.harness.run import run_task
from engine.evaluate.task_bench import task_questions
from engine.models import lora
from engine.models.policy import Policy
from engine.sampling.hf import HFSampler
from tests.engine.evaluate.harness.both import own_prompts
from tests.engine.evaluate.harness.chain_model import chain_policy
from tests.engine.evaluate.harness.written import gsm8k, math


def run(
    policy: Policy,
    rows: Sequence[Question],
    *,
    name: str = "gsm8k_cot",
    shots: int = 0,
    limit: int = 12,
    known: Sequence[Answer] = (),
    answers: list[Answer] | None = None,
    **more: Any,
) -> HarnessResult:
    recall = {answer.row: answer for answer in known}
    return run_task(
        TASKS[name],
        rows,
        [],
        policy,
        shots=shots,
        limit=limit,
        recall=lambda row, _: recall.get(row),
        on_item=([] if answers is None else answers).append,
        batch_size=4,
        **more,
    )


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize(
    ("chain", "text", "truncated", "drawn"),
    [
        (": 18", " 18", False, 4),
        (": 18.Q:", " 18.", False, 6),
        (": 11", " " + "1" * 11, True, 12),
    ],
    ids=["an end token", "a stop text", "the limit"],
)
def test_what_ran_into_the_limit_is_told_from_what_ended(
    chain: str, text: str, *, truncated: bool, drawn: int
) -> None:
    policy = chain_policy(chain)

    found = run(policy, gsm8k()[:2]).items

    assert [item.answer.text for item in found] == [text] * 2
    assert [item.answer.truncated for item in found] == [truncated] * 2
    assert all(len(item.answer.completion_ids) == drawn for item in found)


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("chain", [": 18", ": 18.Q:", ": 11"])
def test_the_harness_and_the_runs_sampler_get_the_same_completion(chain: str) -> None:
    """Prompt ids, text and whether it was cut off, for the same weights."""
    policy, task, rows = chain_policy(chain), TASKS["gsm8k_cot"], gsm8k()
    prompts = dict(
        zip([row.id for row in rows], own_prompts(task, rows, [], 2, policy), strict=True)
    )
    asked = [
        row.but(prompt=prompts[row.id], messages=None)
        for row in task_questions(task, rows, "source")
    ]
    sampler = HFSampler(
        policy, 0, "eval", temp=0.0, max_new_tokens=12, batch_size=4, stops=task.stops
    )

    ours = [group[0] for group in sampler(asked, 1)]
    theirs = [item.answer for item in run(policy, rows, shots=2).items]

    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.truncated for one in ours] == [one.truncated for one in theirs]
    assert [list(one.prompt_ids) for one in ours] == [list(one.prompt_ids) for one in theirs]


def test_an_adapter_is_asked_as_it_is_loaded() -> None:
    """Random weights on the attention: another answer than the base's, and the sampler's own."""
    policy = chain_policy(": 18")
    policy.model = lora.attach_zero(policy.model, rank=4, alpha=64, seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(1))
    rows = gsm8k()[:2]
    asked = [
        row.but(prompt=prompt)
        for row, prompt in zip(
            rows, own_prompts(TASKS["gsm8k_cot"], rows, [], 0, policy), strict=True
        )
    ]
    sampler = HFSampler(policy, 0, "eval", temp=0.0, max_new_tokens=12, batch_size=4)

    texts = [item.answer.text for item in run(policy, rows).items]

    assert texts == [group[0].text for group in sampler(asked, 1)]
    assert " 18" not in texts


@pytest.mark.requirement("EX-12")
def test_an_interrupted_run_asks_what_is_left_and_scores_all() -> None:
    """Answers are handed on a batch at a time; the scores are those of one run."""
    policy, rows = chain_policy(": 18"), gsm8k()
    first: list[Answer] = []
    whole = run(policy, rows, answers=first)
    again: list[Answer] = []

    resumed = run(policy, rows, known=first[:4], answers=again)

    assert len(first) == len(rows)
    assert {answer.row for answer in again} == {row.id for row in rows} - {a.row for a in first[:4]}
    assert resumed == whole
    assert [item.answer.row for item in whole.items] == [row.id for row in rows]


def test_a_group_s_score_weights_its_rows() -> None:
    """Three subjects with 7, 7 and 6 rows are three subtasks of the harness."""
    found = run(chain_policy(": 5"), math(), name="hendrycks_math")

    scores = [item.scores["exact_match"] for item in found.items]
    assert found.metrics["exact_match"] == pytest.approx(statistics.fmean(scores))
    assert 0 < found.metrics["exact_match"] < 1
    assert found.version.startswith("0.4.")


def test_a_prompt_that_leaves_no_room_is_named_and_nothing_is_cut_away() -> None:
    rows = [*gsm8k()[:2], Question("long", "many " * 60, "3", "#### 3")]

    with pytest.raises(RLLoopError, match=r"and row 'long' has \d+ .*; lower max_new_tokens"):
        run(chain_policy(": 18", window=256), rows)


def test_a_row_that_the_task_cannot_be_made_of_is_named() -> None:
    with pytest.raises(TaskRowError, match="row '0' of task mbpp: has no test_list"):
        run(chain_policy(": 18"), gsm8k(), name="mbpp")


def test_without_lm_eval_a_bench_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(name: str) -> str:
        raise PackageNotFoundError(name)

    assert harness_problem(TASKS["minerva_math"]) is None
    monkeypatch.setattr(verifiers, "version", gone)

    assert harness_problem(TASKS["gsm8k"]) == (
        "needs lm-eval 0.4., and it is not installed",
        "pip install 'nightlane[eval]', or set runner: own, which scores the same item by item",
    )
