"""The tasks of lm-evaluation-harness that a bench can name: form, shots, filters, limit.

Read in lm_eval 0.4.13, which is not imported here. What a task makes of a row is in `task_rows`.
Limits are ours (1024 to 4096 tokens): only ifeval (1280) and humaneval (1024) bring their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.contract.problems import nearest
from engine.contract.sources.layouts.recognised import wants
from engine.contract.templates.table import TEMPLATES
from engine.contract.templates.template import Template
from engine.contract.verifiers import INSTRUCTIONS, LATEX, Needed, lacking

FEWSHOT_SEED = 1234
"""Of the harness: what worked examples are drawn with."""
SEED = 42
"""For random, numpy and torch; nothing is drawn from them where decoding is greedy."""


class Filter(NamedTuple):
    """One reading of a completion and what it counts."""

    name: str
    """The harness's, `strict-match`; where it has but one filter, the metric's."""
    verifier: str
    """Ours, which gives the same score item by item."""
    metric: str = "exact_match"
    of_harness: str = "none"
    """What the harness calls the filter: its results say `exact_match,none`."""
    by_instruction: bool = False
    """A row counts as often as it has instructions, and its reward is the share followed."""


class Task(NamedTuple):
    """A task, to the character."""

    name: str
    hub: str
    """Where the harness fetches its rows, which nobody asks here."""
    filters: Sequence[Filter]
    max_new_tokens: int
    layouts: Sequence[str]
    """Rows that it can be made of, as `layout` names them; `verl` and `plain` where they hold the
    same."""
    usual_shots: int = 0
    most_shots: int | None = None
    """None where they are drawn, as many as are wanted."""
    ignores_shots: bool = False
    """The harness stays at 0 shots, whatever is asked."""
    needs: Sequence[Needed] = ()
    """What the harness wants for it, beside lm_eval."""
    subject: Sequence[str] = ()
    """Columns, the first that is there, that divide the rows into the harness's subtasks: worked
    examples are drawn inside of each, each from a stream of its own."""

    @property
    def template(self) -> Template:
        """Form of a question, worked examples, stops."""
        return TEMPLATES[self.name]

    @property
    def draws(self) -> bool:
        """Whether its worked examples are training rows, which somebody has to name."""
        return self.most_shots is None and not self.ignores_shots

    @property
    def stops(self) -> Sequence[str]:
        """Texts that end a completion."""
        return self.template.stops


_FLEXIBLE = Filter("flexible-extract", "gsm8k_flexible", of_harness="flexible-extract")
_ANSWER_IS = Filter("strict-match", "gsm8k", of_harness="strict-match")
_HASHES = Filter("strict-match", "gsm8k_hashes", of_harness="strict-match")
_SUBJECTS = ("type", "subject")

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("gsm8k", "openai/gsm8k", (_HASHES, _FLEXIBLE), 1024, ("gsm8k", "verl", "plain"), 5),
        Task(
            "gsm8k_cot",
            "openai/gsm8k",
            (_ANSWER_IS, _FLEXIBLE),
            1024,
            ("gsm8k", "verl", "plain"),
            8,
            8,
        ),
        Task(
            "gsm8k_cot_zeroshot",
            "openai/gsm8k",
            (_ANSWER_IS, _FLEXIBLE),
            1024,
            ("gsm8k", "verl", "plain"),
            ignores_shots=True,
        ),
        Task(
            "minerva_math",
            "EleutherAI/hendrycks_math",
            (
                Filter("exact_match", "minerva_final_answer"),
                Filter("math_verify", "math_verify", "math_verify"),
            ),
            2048,
            ("math", "verl", "plain"),
            4,
            4,
            needs=(LATEX,),
            subject=_SUBJECTS,
        ),
        Task(
            "hendrycks_math",
            "EleutherAI/hendrycks_math",
            (Filter("exact_match", "hendrycks_math"),),
            2048,
            ("math", "verl", "plain"),
            4,
            subject=_SUBJECTS,
        ),
        Task(
            "ifeval",
            "google/IFEval",
            (
                Filter(
                    "prompt_level_strict_acc", "ifeval_prompt_strict", "prompt_level_strict_acc"
                ),
                Filter(
                    "inst_level_strict_acc",
                    "ifeval_inst_strict",
                    "inst_level_strict_acc",
                    by_instruction=True,
                ),
            ),
            4096,
            ("ifeval",),
            ignores_shots=True,
            needs=(*INSTRUCTIONS, Needed("immutabledict", "", "eval")),
        ),
        Task(
            "mbpp",
            "google-research-datasets/mbpp",
            (Filter("pass_at_1", "mbpp_pass_at_1", "pass_at_1"),),
            1024,
            ("mbpp",),
            3,
            3,
        ),
        Task(
            "humaneval",
            "openai/openai_humaneval",
            (Filter("pass@1", "humaneval_pass_at_1", "pass@1", "create_test"),),
            1024,
            ("humaneval",),
            ignores_shots=True,
        ),
    )
}


def task_named(name: str) -> Task | tuple[str, str]:
    """The task; of an unknown one (problem, remedy).

    >>> task_named("gsm8k_cto")
    ('is no task of lm-evaluation-harness that runs here', 'did you mean gsm8k_cot?')
    """
    if name in TASKS:
        return TASKS[name]
    return "is no task of lm-evaluation-harness that runs here", nearest(name, list(TASKS))


def without_rows(task: Task) -> tuple[str, str]:
    """(problem, remedy) of a bench that names the task and no file.

    >>> without_rows(TASKS["humaneval"])[1]
    'name a file of them with source: rows with prompt, test, entry_point'
    """
    problem = f"has its rows on a hub ({task.hub}), and no hub is asked"
    return problem, f"name a file of them with source: rows with {wants(task.layouts[0])}"


def harness_problem(task: Task) -> tuple[str, str] | None:
    """(problem, remedy) where the harness itself cannot run the task on this machine."""
    needs = (Needed("lm-eval", "0.4.", "eval"), *task.needs)
    return lacking(needs, "set runner: own, which scores the same item by item")


def task_shots_problem(task: Task, shots: int, shots_from: str | None) -> tuple[str, str] | None:
    """(problem, remedy) of a number of worked examples that the harness would refuse or ignore.

    >>> task_shots_problem(TASKS["ifeval"], 4, None)
    ('ifeval stays at 0 shots in lm-evaluation-harness, whatever is asked', 'set shots to 0')
    """
    if not shots:
        return None
    if task.ignores_shots:
        what = f"{task.name} stays at 0 shots in lm-evaluation-harness, whatever is asked"
        return what, "set shots to 0"
    if task.draws:
        return None if shots_from else _from_where(task)
    if shots_from:
        what = f"are {task.name}'s own in lm-evaluation-harness, and shots_from names others"
        return what, "leave shots_from out"
    most = task.most_shots or 0
    if shots <= most:
        return None
    problem = f"{task.name} has {most} worked examples, and lm-evaluation-harness raises for more"
    return problem, f"use {most} at most"


def _from_where(task: Task) -> tuple[str, str]:
    problem = f"of {task.name} are drawn from training rows, and no file of those is named"
    return problem, "name the training file with shots_from, or set shots to 0"
