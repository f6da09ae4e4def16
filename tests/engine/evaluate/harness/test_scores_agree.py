"""Scores against lm-evaluation-harness's own, item by item, on the same completions.

The harness's filters and metrics run where they are installed; no model is asked.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from engine.contract.tasks import TASKS
from engine.data.rows import Question
from engine.evaluate.harness import offline
from engine.models.policy import Policy
from tests.engine.evaluate.harness.both import (
    both_scores,
    crossed,
    differences,
    judged_by_harness,
)
from tests.engine.evaluate.harness.written import gsm8k, humaneval, ifeval, math
from tests.engine.rewards.test_agreement import KNOWN
from tools.harness_agreement import (
    INSTRUCTIONS,
    MUTATIONS,
    PROGRAMS,
    RESPONSES,
    gsm8k_texts,
    math_texts,
)

OURS_ON_PURPOSE = {entry.get("case") for entry in KNOWN if entry["verifier"] == "mbpp"}
OURS_ON_PURPOSE |= {"patched builtin"}
"""Programs that our box does not pay on purpose: listed with the reason, or a cheat that plain
Python falls for."""
ALL = "NIGHTLANE_LONG" in os.environ
"""Some minutes; else a part of them."""
_ENDS = [
    "",
    " ",
    "I do not know.",
    "It is {}",
    "9 * 2 = {0}\n#### {0}",
    "#### {0}\n#### 99",
    "The answer is {}.",
    "The answer is 5. No: the answer is {}.",
    "The answer is {}",
    "\u0417\u043d\u0430\u0447\u0438\u0442, \u043e\u0442\u0432\u0435\u0442 {}.",
    "so $\\boxed{{{}}}$",
    "First $\\boxed{{1}}$, then $\\boxed{{{}}}$.",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    "Final Answer: The final answer is ${}$. I hope it is corr",
    "Final Answer: The final answer is $4$. I hope it is correct. Final Answer: The final answer "
    "is ${}$. I hope it is correct.",
    "$x$ and so ${}$",
    "${}$",
    "{}",
    "\uff11\uff18 \u2212{} \u00bd",
    "<think>The answer is {}.</think>",
    "```\n{}\n```",
]


def _said(golds: Sequence[str]) -> list[str]:
    return [text.format(gold) for gold in golds for text in _ENDS]


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", ["gsm8k", "gsm8k_cot", "gsm8k_cot_zeroshot"])
def test_numbers_are_read_as_the_harness_reads_them(name: str, chat_policy: Policy) -> None:
    """Strict and flexible: wrong, cut off, two answers, other scripts, empty, in another format."""
    rows, texts = crossed(gsm8k()[:2], _said(["7", "1,000.00"]))
    more = list(gsm8k_texts())[:: 1 if ALL else 7]
    rows += [Question(str(i), "Q", gold, f"#### {gold}") for i, (_, _, gold) in enumerate(more)]
    texts += [text for _, text, _ in more]

    found = both_scores(TASKS[name], rows, texts, chat_policy)

    assert differences(found) == []
    for one in TASKS[name].filters:
        assert {pair.theirs[one.name] for pair in found} == {0.0, 1.0}


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", ["minerva_math", "hendrycks_math"])
def test_formulas_are_read_as_the_harness_reads_them(name: str, chat_policy: Policy) -> None:
    rows, texts = crossed(math()[1 : 3 if ALL else 2], _said([r"\frac12"]))
    more = [(t, gold) for _, t, gold in math_texts() if len(t) < 10_000 and "10^9" not in t]
    more = more[:: 1 if ALL else 29]
    rows += [
        Question(str(i), "Q", gold, gold if "\\boxed" in gold else f"Hence $\\boxed{{{gold}}}$.")
        for i, (_, gold) in enumerate(more)
    ]
    texts += [text for text, _ in more]

    found = both_scores(TASKS[name], rows, texts, chat_policy)

    assert differences(found) == []
    for one in TASKS[name].filters:
        assert {pair.theirs[one.name] for pair in found} == {0.0, 1.0}


@pytest.mark.requirement("EX-12")
def test_instructions_are_followed_as_the_harness_has_it(chat_policy: Policy) -> None:
    """All 25 kinds, one and several a row, by prompt and by instruction."""
    alone = [
        Question(
            str(place),
            "Write.",
            json.dumps({"instruction_id_list": [name], "kwargs": [arguments]}),
        )
        for place, (name, arguments) in enumerate(INSTRUCTIONS)
    ]
    said = [*RESPONSES[:: 1 if ALL else 5], "", "<think>no, no</think>YES"]
    rows, texts = crossed([*alone, *ifeval()], said)

    assert differences(both_scores(TASKS["ifeval"], rows, texts, chat_policy)) == []


def test_a_row_counts_as_often_as_it_has_instructions(chat_policy: Policy) -> None:
    """1 of 1, 1 of 2 and 0 of 1 followed: 2 of 4, whereas the mean of the shares is 1/2 too but
    for the second row's weight."""
    rows = ifeval()[:3]
    texts = ["no commas here", "four words without quotes", "nothing"]

    found = judged_by_harness(TASKS["ifeval"], rows, texts, chat_policy)

    shares = [item.scores["inst_level_strict_acc"] for item in found.items]
    assert shares == [1.0, 0.5, 0.0]
    assert found.metrics["inst_level_strict_acc"] == 2 / 4
    assert found.metrics["prompt_level_strict_acc"] == 1 / 3


@pytest.fixture
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness's own way with programs: one process that has program and tests."""

    def passes(program: str, reference: str) -> bool:
        run = f"exec({program + chr(10) + reference!r}, {{}})"  # as code_eval executes it
        command = [sys.executable, "-I", "-c", run]
        try:
            done = subprocess.run(command, capture_output=True, timeout=3, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    monkeypatch.setattr(offline, "_passes", passes)


@pytest.mark.requirement("EX-12")
@pytest.mark.usefixtures("plain_python")
def test_programs_pass_where_they_pass_in_plain_python(chat_policy: Policy) -> None:
    """mbpp: fenced, cut off, empty, right and wrong ones, against what code_eval runs."""
    rows: list[Question] = []
    texts: list[str] = []
    for name, program, tests in PROGRAMS:
        if name in OURS_ON_PURPOSE:
            continue
        gold = json.dumps({"test_list": (tests * 3)[:3]})
        dressed = [f"```python\n{program}\n```", program[: len(program) // 2], ""]
        for text in (program, *dressed) if ALL or len(rows) < 20 else (program,):
            rows.append(Question(str(len(rows)), "Q", gold, columns={"text": "Write f."}))
            texts.append(text)

    assert differences(both_scores(TASKS["mbpp"], rows, texts, chat_policy)) == []


@pytest.mark.requirement("EX-12")
@pytest.mark.usefixtures("plain_python")
def test_functions_pass_where_they_pass_in_plain_python(chat_policy: Policy) -> None:
    """humaneval: continued, written again, fenced, broken."""
    every = humaneval()[:: 4 if ALL else 27]
    dressed = {
        "fenced": lambda code: f"```python\n{code}\n```",
        "explained": lambda code: f"{code}\nThat is all.",
        "empty": lambda _code: "",
    }
    ways = [way for name, way in MUTATIONS.items() if name != "exits"] + [*dressed.values()]
    pairs = list(itertools.product(every, ways))
    rows = [row.but(id=f"{row.id}/{place}") for place, (row, _) in enumerate(pairs)]
    texts = [way(str(row.solution)) for row, way in pairs]

    assert differences(both_scores(TASKS["humaneval"], rows, texts, chat_policy)) == []
