"""The reward of an answer in its form, and how it fades."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from engine.contract.rl.format import FormatConfig, Shape
from engine.rewards.adapter import Reason, RewardAdapter, Verdict, load_verifier, scheduled_reward
from engine.rewards.verifiers.format import SHAPES

RIGHT_FORM, WRONG_FORM = "2 + 3 = 5. The answer is 5.", "The answer is 6."
RIGHT_ELSEWHERE, NOTHING = "So it is 5", "I do not know"
SAID = (RIGHT_FORM, WRONG_FORM, RIGHT_ELSEWHERE, NOTHING)
MAX_STEPS = 100


def reward(**settings: Any) -> RewardAdapter:
    return scheduled_reward(load_verifier("gsm8k"), 0.5, FormatConfig(**settings), MAX_STEPS)


def paid(adapter: RewardAdapter, step: int | None = None) -> list[float]:
    """For a completion of each kind."""
    adapter = adapter if step is None else adapter.at(step)
    verdicts = adapter.judge_all([(said, "5") for said in SAID])
    return [round(verdict.reward, 6) for verdict in verdicts]


@pytest.mark.requirement("EX-06")
def test_form_alone_pays_a_tenth_and_form_with_the_answer_everything() -> None:
    """The composition of the first step; an answer in another form pays nothing."""
    assert paid(reward(reward=0.1), step=1) == [1.0, 0.1, 0.0, 0.0]


@pytest.mark.requirement("EX-06")
def test_added_pays_the_form_on_top() -> None:
    """With a shape of its own: the verifier reads any form, the form is paid besides."""
    adapter = scheduled_reward(
        load_verifier("gsm8k_any"),
        0.5,
        FormatConfig(composition="added", shape="answer_is", reward=0.25),
        MAX_STEPS,
    )

    assert paid(adapter, step=1) == [1.25, 0.25, 1.0, 0.0]
    reasons = [v.reason for v in adapter.at(1).judge_all([(said, "5") for said in SAID])]
    assert reasons[:3] == [Reason.CORRECT, Reason.WRONG, Reason.LENIENT]


@pytest.mark.requirement("EX-06")
def test_form_alone_pays_nothing_at_the_end() -> None:
    """It falls in a line, by default over half of the run; right answers are paid throughout."""
    adapter = reward(reward=0.1)

    assert [paid(adapter, step)[1] for step in (1, 26, 51, 100)] == [0.1, 0.05, 0.0, 0.0]
    assert [paid(adapter, step)[0] for step in (1, 26, 51, 100)] == [1.0] * 4


@pytest.mark.requirement("EX-06")
def test_a_lenient_verifier_pays_other_forms_less_and_less() -> None:
    """And says so: such an answer is never called correct."""
    adapter = reward(lenient="gsm8k_any", lenient_until=50)

    assert [paid(adapter, step)[2] for step in (1, 26, 51)] == [1.0, 0.5, 0.0]
    assert [paid(adapter, step)[3] for step in (1, 26, 51)] == [0.0] * 3
    [verdict] = adapter.at(1).judge_all([(RIGHT_ELSEWHERE, "5")])
    assert (verdict.reason, verdict.answer) == (Reason.LENIENT, "5")


@pytest.mark.requirement("EX-06")
def test_a_gate_judges_strictly_from_the_first_step_on() -> None:
    """Whoever asks without a step gets the verifier alone: what is reported never fades."""
    adapter = reward(reward=0.1, lenient="gsm8k_any", shape="answer_is")

    assert paid(adapter) == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"lenient": "gsm8k_any"},
        {"reward": 0.1, "shape": "boxed"},
        {"reward": 0.1, "composition": "added", "lenient": "gsm8k_any"},
    ],
)
def test_training_counts_as_solved_what_a_gate_counts(settings: dict[str, Any]) -> None:
    """Pool and held-out are one measure, whatever a step pays; a share of a reward is no part."""
    adapter = reward(**settings)
    pairs = [(said, "5") for said in SAID]

    for step in (1, 26, 100):
        training = adapter.at(step)
        verdicts = training.judge_all(pairs, truncated=[True] * len(pairs))
        assert [training.success(verdict) for verdict in verdicts] == [True, False, False, False]
        assert [verdict.strict for verdict in verdicts] == paid(adapter)


def test_a_verifier_that_returns_no_number_has_solved_nothing_in_training_either() -> None:
    """NaN is worth 0, in what is paid and in what is counted."""
    adapter = reward(reward=0.1)
    schedule: Any = adapter.schedule
    nan = Verdict(float("nan"), None, Reason.WRONG)
    object.__setattr__(schedule, "strict", lambda pairs: [nan for _ in pairs])

    [verdict] = adapter.at(1).judge_all([(RIGHT_FORM, "5")])

    assert (verdict.reward, verdict.strict, verdict.reason) == (0.0, 0.0, Reason.CRASH)


@pytest.mark.parametrize(
    ("settings", "formed"),
    [
        ({}, [True, True, False, False]),
        ({"shape": "answer_is"}, [True, True, False, False]),
        ({"pattern": r"it is \d"}, [False, False, True, False]),
    ],
)
def test_the_form_is_what_the_verifier_reads_or_a_shape_or_a_pattern(
    settings: dict[str, Any], formed: list[bool]
) -> None:
    """Right or wrong makes no difference to it."""
    assert reward(**settings).well_formed([(said, "5") for said in SAID]) == formed


def test_a_right_answer_outside_its_form_pays_nothing_when_gated() -> None:
    """`gated` asks for both."""
    assert paid(reward(pattern="####"), step=1) == [0.0] * 4


def test_a_verifier_that_breaks_costs_its_completion_and_stays_a_crash() -> None:
    """The composition hides no defect."""

    def broken(_completion: str, _expected: str) -> Any:
        raise RuntimeError("broken")

    adapter = scheduled_reward(load_verifier("gsm8k"), 0.5, FormatConfig(reward=0.1), MAX_STEPS)
    schedule: Any = adapter.schedule
    object.__setattr__(
        schedule, "strict", lambda cases: [RewardAdapter(broken).judge(*c[:2]) for c in cases]
    )

    [verdict] = adapter.at(1).judge_all([(RIGHT_FORM, "5")])

    assert (verdict.reward, verdict.reason) == (0.0, Reason.CRASH)


def test_every_shape_of_the_verifier_has_its_name_in_the_config() -> None:
    """One list, in two rooms."""
    assert set(get_args(Shape)) == set(SHAPES)


@pytest.mark.parametrize("said", ["", "   \n", "\ufffd"])
def test_an_empty_completion_gets_a_verdict(said: str) -> None:
    """In whatever composition: worth nothing, unparsed, no crash."""
    for adapter in (reward(), reward(reward=0.1), reward(lenient="gsm8k_any", shape="boxed")):
        [verdict] = adapter.at(1).judge_all([(said, "5")])
        assert (verdict.reward, verdict.reason) == (0.0, Reason.UNPARSED)
