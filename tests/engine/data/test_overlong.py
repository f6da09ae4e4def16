"""Prompts that leave no room for a completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.overlong import fitted
from engine.data.rows import Question
from engine.data.split import Split

WINDOW = 20


def fit(split: Split, examples: int = 0, **prompting: Any) -> tuple[Split, list[str]]:
    """With a tokenizer of one id a character; the split that is left, and what was warned."""
    config = RLRunConfig(
        base="embedded:qwen3-tiny", max_new_tokens=8, prompting=prompting, tuning="full"
    )
    warnings: list[str] = []

    def lengths(questions: Sequence[Question], _enough: float) -> list[int]:
        return [len(question.prompt) for question in questions]

    left = fitted(
        split,
        config,
        WINDOW,
        lengths=lengths,
        training_lengths=lambda questions, enough: [
            n + examples for n in lengths(questions, enough)
        ],
        warn=lambda _code, text: warnings.append(text),
    )
    return left, warnings


def rows(*lengths: int, name: str = "q") -> list[Question]:
    return [Question(f"{name}{length}", "x" * length, "7") for length in lengths]


def test_what_fits_to_the_last_token_is_left_alone() -> None:
    """Window 20, 8 new tokens: 12 are left for the prompt."""
    split = Split(train=rows(3, 12), select=rows(12), report=[])

    assert fit(split) == (split, [])


def test_a_prompt_too_long_is_refused_with_its_id_before_training() -> None:
    """Row, length, window and what to change, in one line."""
    split = Split(train=rows(3, 13), select=rows(12), report=rows(40, name="r"))

    with pytest.raises(RLLoopError) as caught:
        fit(split)

    assert str(caught.value) == (
        "data: 2 of 4 rows (50.0%) have prompts with no room for max_new_tokens=8 in the window of "
        "20: 'q13' (13 tokens), 'r40' (40 tokens); shorten them, lower max_new_tokens, or set "
        "prompting.too_long to drop"
    )


def test_dropping_goes_on_without_the_rows_and_says_which() -> None:
    """From whatever part of the split; never in silence."""
    split = Split(train=rows(3, 13), select=rows(12, 30), report=rows(5, 6, 99))

    left, warnings = fit(split, too_long="drop")

    parts = [[q.id for q in part] for part in (left.train, left.select, left.report)]
    assert parts == [["q3"], ["q12"], ["q5", "q6"]]
    assert len(warnings) == 1
    assert warnings[0].startswith("left out: 3 of 7 rows (42.9%) have")


def test_examples_count_where_they_stand() -> None:
    """In front of training prompts; a gate asks the bare question."""
    split = Split(train=rows(3, 8), select=rows(12), report=[])

    left, _ = fit(split, examples=5, too_long="drop")

    assert [q.id for q in left.train] == ["q3"]
    assert left.select == split.select


def test_dropping_everything_is_refused() -> None:
    """There would be nothing to train on."""
    with pytest.raises(RLLoopError, match="no train row is left; shorten the prompts"):
        fit(Split(train=rows(13), select=rows(3), report=[]), too_long="drop")


def test_a_prompt_without_a_token_does_not_fit_either() -> None:
    """Nothing to predict the first token from."""
    with pytest.raises(
        RLLoopError, match=r"1 of 2 rows \(50.0%\) has a prompt without a single token: 'q0'"
    ):
        fit(Split(train=rows(0), select=rows(3), report=[]))
