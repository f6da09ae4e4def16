"""What a run showed, from outcomes alone: clusters, and the two numbers that are said of them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.data.split import Split
from engine.rl.report import report_fields
from engine.rl.state import LoopState

CONFIG = RLRunConfig(base="embedded:qwen3-tiny")


def rows(prompts: list[str], prefix: str) -> list[Question]:
    """Ids differ, whatever is asked."""
    return [Question(f"{prefix}{i}", prompt, "") for i, prompt in enumerate(prompts)]


def run(select: int, report: list[str], after: list[bool]) -> dict[str, Any]:
    """A run whose only gate solves all of `select`, of which step 0 solves none."""
    split = Split([], rows([f"s{i}" for i in range(select)], "s"), rows(report, "r"))
    state = LoopState(step=10, heldout_scores={0: 0.0, 10: 1.0}, seconds=1.0)
    state.heldout_solved = {0: "0" * select, 10: "1" * select}
    return report_fields(state, {0: [False] * len(after), 10: after}, CONFIG, split=split)


@pytest.mark.requirement("RL-04")
@pytest.mark.parametrize("twin", ["What is 1?", "  what IS 1", "What is １？"])
def test_a_report_counts_the_different_questions_among_its_rows(twin: str) -> None:
    """45 rows, 37 different, however the copies are written: both numbers, and a wider interval."""
    alone = [f"What is {i}?" for i in range(1, 46)]
    copies = alone[:37] + [twin] * 8
    after = [i % 3 == 0 for i in range(45)]

    apart, together = run(20, alone, after), run(20, copies, after)

    assert (apart["report_n"], apart["report_different"]) == (45, 45)
    assert (together["report_n"], together["report_different"]) == (45, 37)
    assert together["lift"] == apart["lift"]
    assert width(together) > width(apart)


def width(fields: dict[str, Any]) -> float:
    """Of the lift's interval."""
    low, high = fields["lift_ci95"]
    return float(high - low)


def test_copies_do_not_add_up_to_a_verdict() -> None:
    """Forty report rows that ask twenty things are fewer than thirty."""
    after = [True] * 40

    assert run(20, [f"q{i}" for i in range(40)], after)["verdict"] == "gain"
    assert run(20, [f"q{i % 20}" for i in range(40)], after)["verdict"] == "no verdict"


def test_a_gain_comes_with_what_is_left_of_it_when_chance_is_taken_off() -> None:
    """Above zero; anything but a gain has none."""
    gained = run(20, [f"q{i}" for i in range(40)], [True] * 40)
    flat = run(0, [f"q{i}" for i in range(40)], [False] * 40)

    assert gained["lift_at_least"] > 0
    assert (flat["verdict"], flat["lift_at_least"]) == ("no gain proven", None)
