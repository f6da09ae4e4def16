"""Verdicts: what a completion earns and why."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.contract.verifiers import verifier_names
from engine.rewards.adapter import Reason, RewardAdapter, Verdict, load_verifier


@pytest.mark.parametrize(
    ("completion", "truncated", "expected"),
    [
        ("092", False, Verdict(1.0, "092", Reason.CORRECT)),
        (" 092\n", False, Verdict(1.0, "092", Reason.CORRECT)),
        ("92", False, Verdict(0.0, "92", Reason.WRONG)),
        ("0920", True, Verdict(0.0, "0920", Reason.TRUNCATED)),
        ("092", True, Verdict(1.0, "092", Reason.CORRECT)),
        ("  ", False, Verdict(0.0, None, Reason.UNPARSED)),
    ],
)
def test_exact_pays_for_equal_text_alone(
    completion: str, truncated: bool, expected: Verdict
) -> None:
    """Surrounding white space is no mistake; running into the limit is named as the reason."""
    adapter = RewardAdapter(load_verifier("exact"))

    assert adapter.judge(completion, "092", truncated=truncated) == expected


@pytest.mark.parametrize(
    ("error", "told", "reason"),
    [
        (RuntimeError("x\n y"), "RuntimeError: x y", Reason.CRASH),
        (ValueError(), "ValueError", Reason.CRASH),
        (TimeoutError(), None, Reason.TIMEOUT),
    ],
)
def test_a_verifier_that_raises_costs_its_rollout_the_reward(
    error: Exception, told: str | None, reason: Reason
) -> None:
    """An exception is worth 0 and is told; it does not end the run, whatever was cut off."""

    def broken(completion: str, expected: str) -> Verdict:
        raise error

    for truncated in (False, True):
        verdict = RewardAdapter(broken).judge("a", "b", truncated=truncated)
        assert verdict == Verdict(0.0, told, reason)


def test_a_reward_that_is_no_number_is_zero() -> None:
    """NaN would poison the advantages of its whole group."""
    adapter = RewardAdapter(lambda *_: Verdict(math.nan, "x", Reason.CORRECT))

    assert adapter.judge("a", "b") == Verdict(0.0, "x", Reason.CRASH)


@pytest.mark.parametrize(("reward", "success"), [(0.49, False), (0.5, True), (1.0, True)])
def test_success_begins_at_the_threshold(reward: float, success: bool) -> None:
    """A graded reward becomes solved or not solved in one place."""
    assert (
        RewardAdapter(load_verifier("exact"), 0.5).success(Verdict(reward, None, Reason.WRONG))
        is success
    )


def test_every_verifier_file_can_be_loaded_by_its_name() -> None:
    """The config's choices and the files are the same list."""
    assert "exact" in verifier_names()
    for name in verifier_names():
        assert callable(load_verifier(name))


def test_every_verifier_is_documented() -> None:
    """A name that a config may hold stands in docs/verifiers.md."""
    text = (Path(__file__).resolve().parents[3] / "docs/verifiers.md").read_text("utf-8")

    assert [name for name in verifier_names() if f"`{name}`" not in text] == []
