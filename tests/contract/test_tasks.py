"""The tasks of lm-evaluation-harness that a bench can name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.contract.task_rows import (
    TaskRowError,
    asked_by,
    changes,
    instructions_of,
    subject_of,
)
from engine.contract.tasks import TASKS, task_named, task_shots_problem
from engine.contract.verifiers import verifier_names


@dataclass
class Row:
    prompt: str
    answer: str
    solution: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    id: str = "7"


@pytest.mark.requirement("EX-12")
def test_limits_and_usual_shots_are_those_of_the_table() -> None:
    """EX-12's, whatever the harness's own would be."""
    told = {task.name: (task.max_new_tokens, task.usual_shots) for task in TASKS.values()}

    assert told == {
        "gsm8k": (1024, 5),
        "gsm8k_cot": (1024, 8),
        "gsm8k_cot_zeroshot": (1024, 0),
        "minerva_math": (2048, 4),
        "hendrycks_math": (2048, 4),
        "ifeval": (4096, 0),
        "mbpp": (1024, 3),
        "humaneval": (1024, 0),
    }


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_filter_has_a_name_of_its_own_and_a_verifier_that_exists(task: Any) -> None:
    names = [one.name for one in task.filters]

    assert len(set(names)) == len(names)
    assert {one.verifier for one in task.filters} <= set(verifier_names())
    assert len(task.template.shots) in {0, task.most_shots}


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    assert task_named("minerva_maths") == (
        "is no task of lm-evaluation-harness that runs here",
        "did you mean minerva_math?",
    )


@pytest.mark.parametrize(
    ("name", "shots", "shots_from", "problem"),
    [
        ("gsm8k", 0, None, None),
        ("gsm8k", 8, "train.jsonl", None),
        ("gsm8k", 4, None, "of gsm8k are drawn from training rows, and no file of those is named"),
        ("gsm8k_cot", 4, None, None),
        (
            *("gsm8k_cot", 9, None),
            "gsm8k_cot has 8 worked examples, and lm-evaluation-harness raises for more",
        ),
        (
            *("gsm8k_cot", 4, "train.jsonl"),
            "are gsm8k_cot's own in lm-evaluation-harness, and shots_from names others",
        ),
        (
            *("minerva_math", 8, None),
            "minerva_math has 4 worked examples, and lm-evaluation-harness raises for more",
        ),
        ("mbpp", 4, None, "mbpp has 3 worked examples, and lm-evaluation-harness raises for more"),
        *(
            (name, 1, None, f"{name} stays at 0 shots in lm-evaluation-harness, whatever is asked")
            for name in ("ifeval", "humaneval", "gsm8k_cot_zeroshot")
        ),
        (
            *("hendrycks_math", 4, None),
            "of hendrycks_math are drawn from training rows, and no file of those is named",
        ),
    ],
)
def test_shots_that_the_harness_would_ignore_or_refuse_are_refused(
    name: str, shots: int, shots_from: str | None, problem: str | None
) -> None:
    found = task_shots_problem(TASKS[name], shots, shots_from)

    assert (found and found[0]) == problem


def test_an_instruction_that_verl_added_is_left_out_and_said() -> None:
    asks = " Let's think step by step and output the final answer within \\boxed{}."
    row = Row(f"What is 1/2?{asks}", "0.5", columns={"type": "Algebra", "level": "Level 2"})
    task = TASKS["minerva_math"]

    asked = asked_by(task, row)

    assert asked.prompt == "What is 1/2?"
    assert asked.document == {"problem": "What is 1/2?", "solution": "$\\boxed{0.5}$"}
    assert subject_of(task, row) == "Algebra"
    assert changes(task, [row, Row("Why?", "1", "$\\boxed{1}$")]) == [
        f"an instruction at the end of 1 of 2 prompts is left out:{asks}",
        "1 of 2 rows have no worked solution: the boxed answer stands for it",
    ]


def test_a_worked_answer_of_gsm8k_is_the_gold_as_it_stands() -> None:
    row = Row("How many?", "18", "9 * 2 = 18\n#### 18")

    assert asked_by(TASKS["gsm8k"], row).gold == "9 * 2 = 18\n#### 18"
    assert changes(TASKS["gsm8k"], [row]) == []


def test_hendrycks_math_shows_and_reads_the_bare_answer() -> None:
    row = Row("What?", "5", "so $x=\\boxed{ 5}$")

    assert asked_by(TASKS["hendrycks_math"], row).gold == " 5"
    assert asked_by(TASKS["minerva_math"], row).gold == "so $x=\\boxed{ 5}$"


def test_mbpp_shows_and_runs_three_tests() -> None:
    tests = [f"assert f({i}) == {i}" for i in range(4)]
    gold = json.dumps({"test_list": tests, "test_setup_code": "import math"})
    row = Row("as our layout asks it", gold, columns={"text": "Write f.", "test_list": tests})

    asked = asked_by(TASKS["mbpp"], row)

    assert asked.prompt == "Write f. Your code should pass these tests:\n\n" + "\n".join(tests[:3])
    assert json.loads(asked.gold) == {"test_list": tests[:3]}


def test_a_row_that_lacks_what_the_task_reads_is_named() -> None:
    gold = json.dumps({"test_list": ["assert f(1)"]})
    with pytest.raises(TaskRowError, match="row '7' of task mbpp: has fewer than three tests"):
        asked_by(TASKS["mbpp"], Row("Write f.", gold, columns={"text": "Write f."}))
    with pytest.raises(TaskRowError, match="task ifeval: has no instruction_id_list, kwargs; name"):
        asked_by(TASKS["ifeval"], Row("Write.", "18"))


def test_a_row_of_ifeval_counts_as_often_as_it_has_instructions() -> None:
    names = ["punctuation:no_comma", "startend:quotation"]

    assert instructions_of(json.dumps({"instruction_id_list": names, "kwargs": [{}, {}]})) == 2
