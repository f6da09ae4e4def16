"""The same on GSM8K and MATH as verl publishes them: NIGHTLANE_TEST_ROWS names their folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.contract.sources.config import SourceConfig
from engine.contract.task_rows import changes
from engine.contract.tasks import TASKS
from engine.data.rows import Question, load
from engine.models.policy import Policy
from tests.engine.evaluate.harness.both import (
    both_scores,
    differences,
    harness_prompts,
    loaded,
    own_prompts,
)
from tests.engine.evaluate.harness.written import numbers_of_shots

ROWS = os.environ.get("NIGHTLANE_TEST_ROWS")
_NAMES = ["gsm8k", "gsm8k_cot", "minerva_math", "hendrycks_math"]
_EVERY = 200

pytestmark = pytest.mark.skipif(ROWS is None, reason="NIGHTLANE_TEST_ROWS names no folder")


def _rows(task: str, split: str) -> list[Question]:
    folder = "gsm8k" if task.startswith("gsm8k") else "math"
    file = Path(str(ROWS)) / folder / f"{split}.parquet"
    return list(load(SourceConfig(source=str(file), bad_rows="drop")).questions)


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", _NAMES)
def test_200_prompts_are_the_harness_s_at_every_number_of_shots(
    name: str, chat_policy: Policy, tmp_path: Path
) -> None:
    """With a chat template and without; drawn from all training rows that ask nothing alike."""
    task, rows = TASKS[name], _rows(name, "test")[:_EVERY]
    pool = _rows(name, "train") if task.draws else []
    parts = loaded(task, rows, pool, tmp_path)

    for shots in numbers_of_shots(name):
        for chat in (False, True):
            ours = own_prompts(task, rows, pool, shots, chat_policy, chat=chat)

            assert ours == harness_prompts(parts, rows, shots, chat_policy, chat=chat)


def _completion(row: Question, place: int) -> str:
    """Right, wrong, cut off, two answers, other scripts, empty, right in another format."""
    worked = row.solution or f"Because of that it is $\\boxed{{{row.answer}}}$."
    return [
        worked,
        f"{worked}\nThe answer is {row.answer}.",
        f"Final Answer: The final answer is ${row.answer}$. I hope it is correct.",
        worked[: len(worked) // 2],
        f"The answer is 3. No, the answer is {row.answer}.\n#### {row.answer}",
        f"The answer is {row.answer}7.\n#### {row.answer}7 $\\boxed{{{row.answer}7}}$",
        f"\u7b54\u3048\u306f {row.answer} \u3067\u3059\u3002 \u2212{row.answer}",
        "",
        f"${row.answer}$",
        f"#### {row.answer}",
    ][place % 10]


@pytest.mark.requirement("EX-12")
@pytest.mark.parametrize("name", _NAMES)
def test_200_completions_score_as_in_the_harness(name: str, chat_policy: Policy) -> None:
    rows = _rows(name, "test")[:_EVERY]
    texts = [_completion(row, place) for place, row in enumerate(rows)]

    found = both_scores(TASKS[name], rows, texts, chat_policy)

    assert differences(found) == []
    for one in TASKS[name].filters:
        assert {pair.theirs[one.name] for pair in found} == {0.0, 1.0}


def test_what_verl_added_and_left_out_is_said() -> None:
    """An instruction on every prompt, and no worked solution of MATH."""
    gsm8k, math = (changes(TASKS[n], _rows(n, "test")) for n in ("gsm8k", "hendrycks_math"))

    assert len(gsm8k) == 1
    assert gsm8k[0].startswith("an instruction at the end of 1319 of 1319 prompts is left out")
    assert len(math) == 2
    assert "rows have no worked solution: the boxed answer stands for it" in math[1]
