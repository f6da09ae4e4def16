"""The embedded word problems: right answers, worked out, in the form that a verifier reads."""

from __future__ import annotations

import re

from engine.contract.sources.mixture import DataConfig
from engine.contract.sources.questions import EMBEDDED_TASKS
from engine.data.rows import load
from engine.data.word_problems import SOURCE, rows
from engine.rewards.adapter import RewardAdapter, load_verifier


def test_every_solution_calculates_its_answer() -> None:
    """Each equation holds, and the last one is the answer."""
    for _, prompt, answer, solution in rows():
        equations = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)\.", solution)
        for left, sign, right, result in equations:
            a, b = int(left), int(right)
            assert int(result) == {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]
            assert sign != "/" or a % b == 0
        assert equations[-1][-1] == answer
        assert re.findall(r"\d+", prompt)


def test_they_are_many_all_different_and_always_the_same() -> None:
    """As many as the config's check counts on; ids tell the story."""
    first, again = rows(), rows()

    assert first == again
    assert len(first) == EMBEDDED_TASKS[SOURCE] == 2_000
    assert len({prompt for _, prompt, _, _ in first}) == len({id_ for id_, *_ in first}) == 2_000
    assert len({id_.rpartition("-")[0] for id_, *_ in first}) == 14


def test_a_solution_earns_the_reward_and_a_bare_number_does_not() -> None:
    """What is taught before step 0 is what the strict verifier pays."""
    bench = load(DataConfig(source=SOURCE, limit=50))
    reward = RewardAdapter(load_verifier("gsm8k"))

    assert bench.name == "word_problems"
    for question in bench.questions:
        assert question.solution is not None
        assert reward.judge(question.solution, question.answer).reward == 1.0
        assert reward.judge(question.answer, question.answer).reward == 0.0
