"""The collapse guard's rules on series written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from engine.contract.rl.guard import GuardConfig
from engine.data.rows import Question
from engine.rewards.adapter import Reason, Verdict
from engine.rl.buffer import JudgedGroup
from engine.rl.guards.guard import CollapseGuard, GuardMemory
from engine.run.stop import Collapsed, Diagnosis
from engine.sampling.base import Rollout

HEALTHY = {
    "pool/reward_mean": 0.5,
    "pool/strict_mean": 0.5,
    "train/loss": 0.1,
    "train/grad_norm": 1.0,
    "train/kl": 0.05,
    "train/entropy": 0.8,
    "rollout/length_mean": 20.0,
    "rollout/repeated": 0.0,
    "rollout/duplicates": 0.1,
}
SETTLE, PATIENCE = 10, 5


def settled(config: GuardConfig | None = None, **other: float) -> CollapseGuard:
    """A guard that has seen ten healthy steps."""
    guard = CollapseGuard(config or GuardConfig(), GuardMemory())
    for step in range(1, SETTLE + 1):
        assert guard.stepped(step, HEALTHY | other, ranked=True, seconds=1.0) is None
    return guard


def symptom(guard: CollapseGuard, steps: int, **values: float) -> list[Diagnosis | None]:
    """So many more steps that show these values."""
    first = guard.memory.steps + 1
    return [
        guard.stepped(step, HEALTHY | values, ranked=True, seconds=1.0)
        for step in range(first, first + steps)
    ]


def series(**values: float) -> dict[str, float]:
    """`reward=0` → the series names: without a reward for form it is paid as the verifier says."""
    if "reward" in values:
        values |= {"paid": values["reward"]}
    names = {"reward": "pool/strict_mean", "paid": "pool/reward_mean"}
    names |= {"length": "rollout/length_mean"}
    names |= {"grad_norm": "train/grad_norm", "kl": "train/kl", "entropy": "train/entropy"}
    names |= {"repeated": "rollout/repeated", "duplicates": "rollout/duplicates"}
    return {names[name]: value for name, value in values.items()}


@pytest.mark.requirement("EX-14")
@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("reward vanished", {"reward": 0.01}),
        ("gradient spike", {"grad_norm": 80.0}),
        ("KL spike", {"kl": 3.0}),
        ("entropy gone", {"entropy": 1e-5}),
        ("length drift", {"length": 200.0}),
        ("length drift", {"length": 1.0}),
        ("repeated text", {"repeated": 0.7}),
        ("duplicates", {"duplicates": 0.99}),
    ],
)
def test_a_symptom_that_stays_for_the_patience_is_a_collapse(
    rule: str, values: dict[str, float]
) -> None:
    """Four steps are a bad patch, the fifth is a diagnosis with value, limit and remedy."""
    found = symptom(settled(), PATIENCE, **series(**values))

    assert found[:-1] == [None] * (PATIENCE - 1)
    last = found[-1]
    assert last is not None
    assert (last.rule, last.step) == (rule, SETTLE + PATIENCE)
    assert last.value == next(iter(values.values()))
    assert last.limit is not None
    assert "5 steps in a row" in last.text
    assert last.line().endswith(last.remedy)


def test_a_symptom_that_goes_away_starts_counting_anew() -> None:
    """Four steps, one healthy step, four steps: nothing."""
    guard = settled()

    found = symptom(guard, 4, **series(reward=0.0))
    found += symptom(guard, 1)
    found += symptom(guard, 4, **series(reward=0.0))

    assert found == [None] * 9


@pytest.mark.requirement("EX-14")
@pytest.mark.parametrize(
    "values",
    [
        {"entropy": 1e-5},
        {"length": 200.0},
        {"length": 1.0},
        {"repeated": 0.7},
        {"duplicates": 0.99},
    ],
)
def test_what_healthy_learning_shows_too_is_no_collapse_while_the_reward_is_better(
    values: dict[str, float],
) -> None:
    """A policy that is sure and right has no entropy, and says the same thing each time."""
    found = symptom(settled(), 3 * PATIENCE, **series(reward=0.9, **values))

    assert found == [None] * (3 * PATIENCE)


@pytest.mark.requirement("EX-14")
def test_steps_that_leave_every_update_out_end_the_run_after_the_patience() -> None:
    """`optim.nonfinite: skip` is for a bad update now and then; this run moves no more."""
    without = {k: v for k, v in HEALTHY.items() if not k.startswith("train/")}
    skipped = without | {"train/updates": 0.0, "train/skipped": 2.0}
    guard = settled()

    for step in range(PATIENCE - 1):
        assert guard.stepped(11 + step, skipped, ranked=True, seconds=1.0) is None
    one_applied = HEALTHY | {"train/updates": 1.0, "train/skipped": 1.0}
    assert guard.stepped(15, one_applied, ranked=True, seconds=1.0) is None
    found = [guard.stepped(16 + s, skipped, ranked=True, seconds=1.0) for s in range(PATIENCE)]

    assert found[:-1] == [None] * (PATIENCE - 1)
    assert found[-1] is not None
    assert found[-1].rule == "not a number"
    assert "every update of the step (2) was left out" in found[-1].text


@pytest.mark.requirement("EX-14")
@pytest.mark.parametrize("name", ["train/loss", "train/grad_norm", "train/kl"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_needs_no_patience(name: str, value: float) -> None:
    """Not even a settled run: what follows NaN is NaN."""
    guard = CollapseGuard(GuardConfig(), GuardMemory())

    found = guard.stepped(1, HEALTHY | {name: value}, ranked=True, seconds=1.0)

    assert found is not None
    assert (found.rule, found.value) == ("not a number", None)
    assert f"{name} is" in found.text


def test_a_kl_that_grows_slowly_is_no_spike() -> None:
    """It always grows from 0: the running median grows with it."""
    guard = CollapseGuard(GuardConfig(), GuardMemory())

    for step in range(1, 200):
        values = HEALTHY | {"train/kl": 0.02 * step}
        assert guard.stepped(step, values, ranked=True, seconds=1.0) is None


def test_a_reward_that_was_never_there_does_not_vanish() -> None:
    """Rare successes come and go."""
    guard = CollapseGuard(GuardConfig(), GuardMemory())

    for step in range(1, 60):
        values = HEALTHY | series(reward=0.03 if step % 10 == 0 else 0.0)
        assert guard.stepped(step, values, ranked=True, seconds=1.0) is None


@pytest.mark.requirement("EX-14")
def test_a_reward_for_form_that_fades_is_no_reward_that_vanished() -> None:
    """From 0.45 to nothing, as configured, while the answers stay as right as they were."""
    guard = CollapseGuard(GuardConfig(), GuardMemory())

    for step in range(1, 80):
        fading = 0.03 + max(0.0, 0.42 * (1 - step / 40))
        values = HEALTHY | series(reward=0.03) | {"pool/reward_mean": fading}
        assert guard.stepped(step, values, ranked=True, seconds=1.0) is None


@pytest.mark.requirement("EX-14")
def test_answers_that_vanish_behind_a_paid_form_are_found() -> None:
    """The form goes on being paid; the verifier gives nothing any more."""
    guard = settled()

    found = symptom(guard, PATIENCE, **{"pool/strict_mean": 0.0})[-1]

    assert found is not None
    assert (found.rule, found.value) == ("reward vanished", 0.0)


@pytest.mark.parametrize("better", ["pool/reward_mean", "pool/strict_mean"])
def test_a_form_that_is_learnt_before_the_answer_is_healthy_learning(better: str) -> None:
    """One of the two rewards is better than at first, so sure and equal texts are no collapse."""
    values = series(entropy=1e-5, duplicates=0.99) | {better: 0.6}

    assert symptom(settled(), 3 * PATIENCE, **values) == [None] * (3 * PATIENCE)


def test_a_memory_from_before_the_strict_series_is_taken_up() -> None:
    """A run that was stopped by an older version goes on; the new series begins with it."""
    one = settled()
    memory = GuardMemory(**asdict(one.memory))
    del memory.first["pool/strict_mean"], memory.recent["pool/strict_mean"]
    guard = CollapseGuard(GuardConfig(), memory)

    assert symptom(guard, 2 * PATIENCE) == [None] * (2 * PATIENCE)
    assert len(guard.memory.first["pool/strict_mean"]) == SETTLE


@pytest.mark.requirement("EX-14")
def test_a_corpus_whose_groups_all_tie_ends_as_no_signal() -> None:
    """Twenty steps without one group to rank: nothing will come of the twenty-first."""
    guard = CollapseGuard(GuardConfig(), GuardMemory())
    untrained = {k: v for k, v in HEALTHY.items() if not k.startswith("train/")}

    found = [guard.stepped(s, untrained, ranked=False, seconds=1.0) for s in range(1, 21)]

    assert found[:-1] == [None] * 19
    assert found[-1] is not None
    stop = Collapsed(found[-1])
    assert stop.cause == "NO_SIGNAL"
    assert "earned the same, 20 steps in a row; choose rows that are solved at times" in str(stop)


def test_a_run_that_has_learnt_all_there_is_is_not_without_signal() -> None:
    """Ties after training are a success, or the end of the reward, which has its own rule."""
    guard = settled()
    untrained = {k: v for k, v in HEALTHY.items() if not k.startswith("train/")}
    solved = untrained | series(reward=1.0)

    found = [guard.stepped(s, solved, ranked=False, seconds=1.0) for s in range(11, 80)]

    assert found == [None] * 69


@pytest.mark.requirement("EX-14")
def test_a_step_is_stuck_after_many_times_the_runs_own_median() -> None:
    """Known only once the run has steps to compare with, and never under the least time."""
    guard = CollapseGuard(GuardConfig(step_time_s=5), GuardMemory())
    assert guard.stuck_after() is None
    for step in range(1, SETTLE + 1):
        guard.stepped(step, HEALTHY, ranked=True, seconds=0.1)
    assert guard.stuck_after() == 5
    for step in range(1, 20):
        guard.stepped(step, HEALTHY, ranked=True, seconds=2.0)

    assert guard.stuck_after() == 40
    found = guard.stuck(30, 40.0)
    assert "not done after 40 s, and a step of this run takes 2.0 s" in found.text


def test_the_guards_memory_survives_a_resume() -> None:
    """Streak, medians and best come back through JSON: the resumed guard judges alike."""
    one = settled()
    symptom(one, 3, **series(grad_norm=80.0))

    other = CollapseGuard(GuardConfig(), GuardMemory(**asdict(one.memory)))

    expected = symptom(one, 2, **series(grad_norm=80.0))
    assert symptom(other, 2, **series(grad_norm=80.0)) == expected
    assert expected[-1] is not None


def test_switched_off_it_sees_nothing() -> None:
    """`guard.collapse: false`."""
    guard = settled(GuardConfig(collapse=False))

    found = symptom(guard, 20, **series(reward=0.0, grad_norm=1e9), **{"train/loss": float("nan")})

    assert found == [None] * 20
    assert guard.stuck_after() is None


def _group(texts: Mapping[str, tuple[float, int]]) -> JudgedGroup:
    rollouts = [
        Rollout("q", i, (1,), tuple(range(length)), (), text, False, 0)
        for i, (text, (_, length)) in enumerate(texts.items())
    ]
    verdicts = [Verdict(reward, None, Reason.WRONG) for reward, _ in texts.values()]
    return JudgedGroup(Question("q", "ask", "7"), rollouts, verdicts, [0.0] * len(verdicts), 0, 1)


@pytest.mark.requirement("EX-14")
@pytest.mark.parametrize(
    ("values", "first"),
    [({"reward": 0.0}, "worst"), ({"length": 900.0}, "longest")],
)
def test_a_diagnosis_shows_completions_of_its_kind(values: dict[str, Any], first: str) -> None:
    """The lowest reward for a vanished one, the longest for a drift."""
    guard = settled()
    guard.sampled([_group({"fine": (1.0, 5), "longest": (0.9, 90), "worst": (0.0, 6)})])

    found = symptom(guard, PATIENCE, **series(**values))[-1]

    assert found is not None
    assert found.samples[0]["completion"] == first
    assert found.samples[0]["prompt"] == "ask"
