"""The same rows asked and judged twice: by lm_eval itself, and by our prompts and verifiers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.rl.prompting import PromptingConfig
from engine.contract.tasks import FEWSHOT_SEED, Task
from engine.data.rows import Question
from engine.evaluate.harness.local import Part, parts_of
from engine.evaluate.harness.model import PolicyLM
from engine.evaluate.harness.results import Answer, HarnessResult
from engine.evaluate.harness.run import run_task
from engine.evaluate.task_bench import drawn_by_subject, task_questions
from engine.models.policy import Policy
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.sampling.prompts import PromptBuilder
from engine.sampling.shots import fixed_examples


def own_prompts(
    task: Task,
    rows: Sequence[Question],
    pool: Sequence[Question],
    shots: int,
    policy: Policy,
    *,
    chat: bool = False,
    system: str = "",
) -> list[str]:
    """What the run's sampler would read, as text."""
    asked = task_questions(task, rows, "source")
    shown = task_questions(task, pool, "shots_from")
    examples = (
        drawn_by_subject(task, asked, shown, shots, FEWSHOT_SEED)
        if task.draws and shots
        else fixed_examples(task.name, shots)
    )
    config = PromptingConfig(template=task.name, skip_chat_template=not chat, system_prompt=system)
    builder = PromptBuilder(policy.tokenizer, config, examples)
    return [builder.text(question) for question in asked]


def loaded(
    task: Task, rows: Sequence[Question], pool: Sequence[Question], folder: Path
) -> list[Part]:
    """The harness's own tasks over the rows."""
    return parts_of(task, rows, pool, folder)


def harness_prompts(
    parts: Sequence[Part],
    rows: Sequence[Question],
    shots: int,
    policy: Policy,
    *,
    chat: bool = False,
    system: str = "",
) -> list[str]:
    """What the harness's own tasks ask, in the order of the rows."""
    model = model_of(policy)
    found: dict[str, str] = {}
    for part in parts:
        part.task.set_config("num_fewshot", shots)
        part.task.set_fewshot_seed(FEWSHOT_SEED)
        part.task.build_all_requests(
            system_instruction=system or None,
            apply_chat_template=chat,
            fewshot_as_multiturn=True,
            chat_template=model.apply_chat_template if chat else None,
        )
        for request in part.task.instances:
            found[part.rows[request.doc_id].id] = request.args[0]
    return [found[row.id] for row in rows]


def model_of(policy: Policy) -> Any:
    """The policy as the harness gets it; it is not asked for anything."""
    return PolicyLM(policy, 1, lambda _: "", lambda *_: None, lambda _: None)


def judged_by_harness(
    task: Task, rows: Sequence[Question], texts: Sequence[str], policy: Policy
) -> HarnessResult:
    """Scores of completions that are known already: no model is asked."""
    said = {row.id: text for row, text in zip(rows, texts, strict=True)}

    def recall(row: str, prompt: str) -> Answer:
        return Answer(row, prompt, said[row], truncated=False, prompt_ids=(), completion_ids=())

    return run_task(
        task,
        rows,
        [],
        policy,
        shots=0,
        limit=8,
        recall=recall,
        on_item=_never,
        batch_size=1,
    )


def _never(answer: Answer) -> None:
    raise AssertionError(f"the model was asked for row {answer.row}")


def judged_by_ours(
    task: Task, rows: Sequence[Question], texts: Sequence[str]
) -> list[Mapping[str, float]]:
    """The reward of every filter's verifier, a completion each."""
    asked = task_questions(task, rows, "source")
    pairs = [(text, row.answer) for text, row in zip(texts, asked, strict=True)]
    by_filter = {
        one.name: [
            verdict.reward
            for verdict in RewardAdapter(load_verifier(one.verifier)).judge_all(pairs)
        ]
        for one in task.filters
    }
    return [
        {name: rewards[place] for name, rewards in by_filter.items()} for place in range(len(pairs))
    ]


class Pair(NamedTuple):
    """One completion with both scores."""

    text: str
    gold: str
    theirs: Mapping[str, float]
    ours: Mapping[str, float]


def both_scores(
    task: Task, rows: Sequence[Question], texts: Sequence[str], policy: Policy
) -> list[Pair]:
    """Each completion judged by the harness and by our verifiers."""
    theirs = judged_by_harness(task, rows, texts, policy).items
    ours = judged_by_ours(task, rows, texts)
    return [
        Pair(text, row.answer, item.scores, own)
        for text, row, item, own in zip(texts, rows, theirs, ours, strict=True)
    ]


def differences(pairs: Sequence[Pair]) -> list[Pair]:
    """Those whose scores are not equal, by whatever filter."""
    return [pair for pair in pairs if pair.theirs != pair.ours]


def crossed(rows: Sequence[Question], texts: Sequence[str]) -> tuple[list[Question], list[str]]:
    """Every row with every completion, the rows under ids of their own."""
    pairs = list(itertools.product(rows, texts))
    renamed = [row.but(id=f"{row.id}/{place}") for place, (row, _) in enumerate(pairs)]
    return renamed, [text for _, text in pairs]
