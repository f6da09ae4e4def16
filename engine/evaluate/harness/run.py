"""Runs a task through lm-evaluation-harness's own Python API over the policy that is loaded.

Prompts, decoding, filters and scores are the harness's. Rows, policy and the place where programs
run are ours. Whoever calls asks `task_problem` first: lm_eval is an extra.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from engine.contract.tasks import FEWSHOT_SEED, SEED, Filter, Task
from engine.data.rows import Question
from engine.evaluate.harness.local import Part, parts_of
from engine.evaluate.harness.model import PolicyLM
from engine.evaluate.harness.results import Answer, HarnessItem, HarnessResult, OnItem, Recall
from engine.models.policy import Policy

Samples = Mapping[str, Mapping[str, float]]
"""By row id the scores of each filter."""


def run_task(
    task: Task,
    rows: Sequence[Question],
    pool: Sequence[Question],
    policy: Policy,
    *,
    shots: int,
    limit: int,
    recall: Recall,
    on_item: OnItem,
    batch_size: int,
    chat_template: bool = False,
    template_variables: Mapping[str, Any] | None = None,
    system_prompt: str = "",
    seed: int = SEED,
    fewshot_seed: int = FEWSHOT_SEED,
) -> HarnessResult:
    """`rows` and `pool` are rows of a source as they were read; `limit` new tokens, greedy.

    Worked examples are drawn from `pool`, where the task draws them. Raises TaskRowError for a row
    that the task cannot be made of, RLLoopError for a prompt too long, Aborted between batches.
    """
    with tempfile.TemporaryDirectory(prefix="nightlane-harness-") as folder:
        parts = parts_of(task, rows, pool, Path(folder))
        ids = {part.task.task_name: [row.id for row in part.rows] for part in parts}
        model = PolicyLM(
            policy,
            batch_size,
            lambda request: _row_of(request, ids),
            recall,
            on_item,
            **template_variables or {},
        )
        found = lm_eval.simple_evaluate(
            model=model,
            tasks=[part.task for part in parts],
            num_fewshot=shots,
            gen_kwargs={"max_gen_toks": limit},
            apply_chat_template=chat_template,
            system_instruction=system_prompt or None,
            bootstrap_iters=0,
            random_seed=seed,
            numpy_random_seed=seed,
            torch_random_seed=seed,
            fewshot_random_seed=fewshot_seed,
            task_manager=TaskManager(include_defaults=False),
            confirm_run_unsafe_code=True,  # in our box
        )
    return _result(task, rows, parts, model.answers, found)


def _row_of(request: Instance, ids: Mapping[str, Sequence[str]]) -> str:
    name, place = request.task_name, request.doc_id
    return ids[str(name)][int(place)]


def _result(
    task: Task,
    rows: Sequence[Question],
    parts: Sequence[Part],
    answers: Mapping[str, Answer],
    found: Mapping[str, Any],
) -> HarnessResult:
    scores: dict[str, dict[str, float]] = {row.id: {} for row in rows}
    for part in parts:
        for sample in found["samples"][part.task.task_name]:
            told = scores[part.rows[sample["doc_id"]].id]
            for one in task.filters:
                if sample["filter"] == one.of_harness:
                    told[one.name] = _share(sample[one.metric])
    items = [HarnessItem(answers[row.id], scores[row.id]) for row in rows]
    metrics = {one.name: _over_parts(one, parts, found["results"]) for one in task.filters}
    return HarnessResult(items, metrics, str(lm_eval.__version__))


def _share(score: Any) -> float:
    """Of instructions, those that were followed."""
    return sum(score) / len(score) if isinstance(score, list) else float(score)


def _over_parts(one: Filter, parts: Sequence[Part], results: Mapping[str, Any]) -> float:
    """As a group there: subtasks by their rows."""
    total = sum(len(part.rows) for part in parts)
    key = f"{one.metric},{one.of_harness}"
    return sum(len(p.rows) * float(results[p.task.task_name][key]) for p in parts) / total
