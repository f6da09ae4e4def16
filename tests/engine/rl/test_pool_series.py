"""What a step's rollouts are counted by: sources and forms of answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.data.rows import Question
from engine.rewards.adapter import Reason, Verdict
from engine.rl.batch import Batch, batch_metrics
from engine.rl.buffer import JudgedGroup
from engine.sampling.base import Rollout


def _group(source: str, *said: tuple[str, bool | None]) -> JudgedGroup:
    """Completions, each right, wrong or not judged."""
    reasons = {True: Reason.CORRECT, False: Reason.WRONG, None: Reason.UNJUDGED}
    rollouts = [
        Rollout("q", i, (1,), (2, 3), (-1.0, -1.0), text, truncated=False, version=0)
        for i, (text, _) in enumerate(said)
    ]
    verdicts = [Verdict(float(bool(right)), None, reasons[right]) for _, right in said]
    task = Question("q", "What?", "1", source=source)
    return JudgedGroup(task, rollouts, verdicts, [0.0] * len(said), version=0, step=1)


def _metrics(*groups: JudgedGroup, formed: bool = False) -> dict[str, float]:
    return batch_metrics(
        Batch(groups, groups, {}), lambda verdict: verdict.reward >= 0.5, formed=formed
    )


@pytest.mark.requirement("EX-22")
def test_forms_are_counted_of_all_of_the_right_and_of_the_wrong() -> None:
    found = _metrics(
        _group("", (r"so \boxed{1}", True), ("it is 1", True)),
        _group("", (r"\boxed{2}", False), ("#### 2", None)),
    )

    assert found["format/boxed"] == 0.5
    assert (found["format/boxed/right"], found["format/boxed/wrong"]) == (0.5, 1.0)
    assert (found["format/hashes"], found["format/hashes/right"]) == (0.25, 0.0)


@pytest.mark.requirement("EX-22")
def test_cut_off_and_unread_completions_are_counted_on_both_sides() -> None:
    group = _group("", ("1", True), ("it is 1", True), ("2", False), ("hm", False))
    *read, cut = group.rollouts
    rollouts = [*read, replace(cut, truncated=True)]
    verdicts = [*group.verdicts[:-1], Verdict(0.0, None, Reason.UNPARSED)]

    found = _metrics(replace(group, rollouts=rollouts, verdicts=verdicts))

    assert (found["rollout/truncated"], found["rollout/truncated/wrong"]) == (0.25, 0.5)
    assert (found["pool/unparsed"], found["pool/unparsed/wrong"]) == (0.25, 0.5)
    assert found["pool/unparsed/right"] == found["rollout/truncated/right"] == 0.0


def test_a_form_that_is_lost_is_measured_as_none_and_one_that_never_was_is_not() -> None:
    plain = _group("", ("1", True))

    assert not any(name.startswith("format/") for name in _metrics(plain))
    assert _metrics(plain, formed=True)["format/boxed"] == 0.0


@pytest.mark.requirement("EX-07")
def test_each_source_of_a_mixture_has_its_pool_score() -> None:
    """What was not judged is in none."""
    found = _metrics(
        _group("gsm8k", ("1", True), ("2", False)),
        _group("gsm8k", ("1", True), ("2", None)),
        _group("math", ("1", False)),
    )

    assert found["pool/score/gsm8k"] == pytest.approx(2 / 3)
    assert found["pool/score/math"] == 0.0
    assert not any(name.startswith("pool/score/") for name in _metrics(_group("", ("1", True))))
