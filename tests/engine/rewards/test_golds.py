"""The rules about golds are what the verifiers do: refused is what they never pay."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args

import pytest

from engine.contract.golds.boxes import gold_text
from engine.contract.golds.checks import gold_check
from engine.contract.golds.instructions import INSTRUCTIONS
from engine.contract.rl.format import Shape
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rewards.text.ifeval_checks import CHECKS
from engine.rewards.verifiers.format import SHAPES

GOLDS = [
    *("18", "-5", "-2.5", "2.5", "1,800", "$18", "18.50", "1/2", "1e3", "50%", "5 feet"),
    *("9 * 2 = 18\n#### 18", "\\boxed{18}", "so $\\boxed{18}$", "\\frac{1}{2}", "x<3"),
    *("see figure", "10:30", "5 or 6"),
]
FORMS = {
    "gsm8k": "The answer is {}.",
    "gsm8k_flexible": "It is {}",
    "gsm8k_any": "\\boxed{{{}}}",
    "gsm8k_last_number": "It is {}",
    "allenai_gsm8k": "It is {}",
    "allenai_math": "$\\boxed{{{}}}$",
    "minerva_math": "$\\boxed{{{}}}$",
    "minerva_final_answer": "Final Answer: The final answer is ${}$. I hope it is correct.",
    "hendrycks_math": "So ${}$",
    "math": "$\\boxed{{{}}}$",
}
"""How each verifier's answers are written."""
WORDS = {"see figure", "10:30", "5 or 6", "x<3", "\\frac{1}{2}"}


def answers_of(gold: str) -> set[str]:
    """Without the reasoning around it; with and without its currency."""
    return {gold_text(gold), gold_text(gold).lstrip("$")}


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_gold_is_refused_exactly_where_its_verifier_does_not_pay_it(name: str) -> None:
    """The gold, in the form that the verifier's answers take."""
    check = gold_check(name)
    assert check is not None
    ours = {gold: check(gold) is None for gold in GOLDS}
    pairs = [(FORMS[name].format(answer), gold) for gold in GOLDS for answer in answers_of(gold)]
    verdicts = RewardAdapter(load_verifier(name)).judge_all(pairs)

    paid = dict.fromkeys(GOLDS, False)
    for (_, gold), verdict in zip(pairs, verdicts, strict=True):
        paid[gold] |= verdict.reward == 1.0

    if name.startswith(("gsm8k", "allenai_gsm8k")):
        # a text that is no number is refused, though its own repetition may be paid as text
        ours = {gold: fits for gold, fits in ours.items() if gold not in WORDS}
    assert {gold: paid[gold] for gold in ours} == ours


@pytest.mark.requirement("EX-05")
def test_the_instructions_are_those_that_are_checked_with_their_arguments() -> None:
    """The list that rows are held to is the one that the engine has."""
    checked = {
        name: tuple(inspect.signature(check).parameters)[1:] for name, check in CHECKS.items()
    }

    assert checked == dict(INSTRUCTIONS)


def test_the_shapes_are_those_of_the_verifier() -> None:
    """One list of names."""
    assert set(SHAPES) == set(get_args(Shape))


@pytest.mark.parametrize("frequency", [1, 1.0])
def test_a_row_that_passes_is_judged_and_not_a_crash(frequency: float) -> None:
    """What is asked at enqueue is all that the verifier asks."""
    row: dict[str, Any] = {"instruction_id_list": ["keywords:frequency"]}
    row["kwargs"] = [{"keyword": "a", "frequency": frequency, "relation": "at least"}]
    gold = json.dumps(row)
    check = gold_check("ifeval")

    assert check is not None
    assert check(gold) is None
    assert RewardAdapter(load_verifier("ifeval")).judge("a word", gold).reward == 1.0
