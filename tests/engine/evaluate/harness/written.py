"""Rows of every task, written for tests: letters of other scripts, braces, line ends, tokens."""

from __future__ import annotations

import json
from typing import Any

from engine.contract.tasks import TASKS
from engine.data.rows import Question
from tools.harness_agreement import human_eval_rows

_ODD = [
    "How many apples are 3 + 4?",
    "Zoë’s duck lays 16 eggs … “per day”. How many are left?",
    "日本語の問題: 7 と 8 の和は?",
    "A set is written {{1, 2}} or {prompt}; {% raw %} how many elements?",
    "Two lines.\nQuestion: how many lines?",
    "Windows ends\r\nits lines otherwise. How many?  ",
    "  Blanks in front and behind  ",
    "What does <|im_end|> cost, at $5 a letter?",
    "5",
    "<b>tags</b> & entities &amp; 'quotes' \"double\" \\backslash",
]


def gsm8k(prefix: str = "") -> list[Question]:
    """With worked answers, as published."""
    return [
        Question(
            f"{prefix}{place}",
            f"{prefix}{text}",
            str(place + 7),
            f"It is {place} + 7 = <<{place}+7={place + 7}>>{place + 7}.\n#### {place + 7}",
        )
        for place, text in enumerate(_ODD)
    ]


def math(prefix: str = "") -> list[Question]:
    """Of three subjects; an answer in brackets is a list to Python."""
    subjects = ["Algebra", "Counting & Probability", "Precalculus"]
    answers = ["5", r" \frac{1}{2} ", "[1,2]"]
    return [
        Question(
            f"{prefix}{place}",
            f"{prefix}{text}",
            answers[place % 3],
            f"Because ${place}$ it is $\\boxed{{{answers[place % 3]}}}$.",
            columns={"type": subjects[place % 3], "level": f"Level {place % 5 + 1}"},
        )
        for place, text in enumerate(_ODD * 2)
    ]


def ifeval() -> list[Question]:
    """One and two instructions a row."""
    given: list[list[tuple[str, dict[str, Any]]]] = [
        [("punctuation:no_comma", {})],
        [
            ("startend:quotation", {}),
            ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}),
        ],
        [("keywords:existence", {"keywords": ["cat", "mat"]})],
        [
            ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}),
            ("change_case:english_lowercase", {}),
            ("language:response_language", {"language": "en"}),
        ],
    ]
    return [
        Question(
            str(place),
            f"{text} Follow the rules.",
            json.dumps(
                {
                    "instruction_id_list": [name for name, _ in rules],
                    "kwargs": [arguments for _, arguments in rules],
                }
            ),
            columns={"key": place},
        )
        for place, (text, rules) in enumerate(zip(_ODD, given * 3, strict=False))
    ]


def mbpp() -> list[Question]:
    """With three tests each and a fourth, which the task leaves out."""
    found = []
    for place, text in enumerate(_ODD):
        tests = [f"assert f({n}) == {n + place}" for n in range(4)]
        found.append(
            Question(
                str(place),
                "as the layout writes it",
                json.dumps({"test_list": tests, "test_setup_code": ""}),
                f"def f(n):\r\n    return n + {place}",
                columns={"text": f"Write f. {text}", "test_list": tests},
            )
        )
    return found


def humaneval() -> list[Question]:
    """The 164 that a package carries."""
    names = ("prompt", "test", "entry_point")
    return [
        Question(
            row["task_id"],
            row["prompt"],
            json.dumps({name: row[name] for name in names}),
            row["canonical_solution"],
            columns=row,
        )
        for row in human_eval_rows()
    ]


def rows_of(task: str) -> tuple[list[Question], list[Question]]:
    """(rows, training rows to draw from)."""
    if task.startswith("gsm8k"):
        return gsm8k(), gsm8k("Train. ")
    if task in {"minerva_math", "hendrycks_math"}:
        return math(), math("Train. ")
    return {"ifeval": ifeval, "mbpp": mbpp, "humaneval": humaneval}[task](), []


def numbers_of_shots(task: str) -> list[int]:
    """Every number that the task allows; of drawn ones some."""
    one = TASKS[task]
    if one.ignores_shots:
        return [0]
    return [0, 1, 4, 5] if one.most_shots is None else list(range(one.most_shots + 1))
