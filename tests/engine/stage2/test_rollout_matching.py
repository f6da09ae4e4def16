"""`rollout_matching_sft`: its loss by hand, its independence of batches, and whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.registry import validate
from engine.contract.sources.records import Record
from engine.contract.stage2.coord_soft_ce_w1 import CoordSoftCEW1Config
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel, forward
from engine.run.stop import Aborted, rl_hooks
from engine.stage2.learn.coord_distribution import gaussian
from engine.stage2.learn.layout import padded
from engine.stage2.learn.learner import Layouts, PackPlan
from engine.stage2.learn.matching import MatchingLearner, Sums
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout_matching_sft import run as matching_run
from engine.stage2.rollout_step import RolloutStep, TrainingSequence
from engine.stage2.target.desc_gate import no_gate
from engine.stage2.taught import OneTarget
from tests.engine.conftest import add_attempt, opened
from tests.engine.stage2.conftest import changed
from tests.engine.stage2.test_channel_b import Written, said

Events = Callable[..., list[Event]]
Recipe = dict[str, Any]
CONFIG = CoordSoftCEW1Config()
AB = {
    "stage2_ab__schedule__b_ratio": 0.5,
    "stage2_ab__channel_b__semantic_desc_gate__enabled": False,
}


@pytest.fixture
def recipe(matching_recipe: Recipe) -> Recipe:
    """The small run of `stage2_ab` as one of rollout matching."""
    return matching_recipe


@pytest.fixture
def sequences(
    reader: PromptReader, pieces: TokenPieces, records: list[Record]
) -> list[TrainingSequence]:
    """Of a rollout that finds all, one that finds nothing, and one that is no JSON."""
    texts = [said(records[0]), "{}", "what?"]
    config = RolloutMatchingConfig(rollout_backend="hf")
    rollouts = RolloutStep(
        Written(pieces, texts), reader, pieces, config, OneTarget(0.0), no_gate()
    )
    return list(rollouts(records[:3], 0).sequences)


NewLearner = Callable[..., MatchingLearner]


@pytest.fixture
def new_learner(vlm: VisionModel, coord_ids: torch.Tensor) -> NewLearner:
    def make(plan: PackPlan | None = None, micro_batch: int = 4) -> MatchingLearner:
        return MatchingLearner(Layouts(vlm, 0, plan, micro_batch), coord_ids, CONFIG)

    return make


def gradients(vlm: VisionModel) -> torch.Tensor:
    found = [p.grad.flatten() for p in vlm.model.parameters() if p.grad is not None]
    vlm.model.zero_grad()
    return torch.cat(found)


@pytest.mark.requirement("RM-01")
def test_the_loss_of_a_step_is_what_a_hand_computes(
    new_learner: NewLearner, vlm: VisionModel, sequences: list[TrainingSequence],
    coord_ids: torch.Tensor,
) -> None:  # fmt: skip
    """In fp64, token by token: weighted CE over the sum of weights; over all slots in one pool soft
    CE, W1 and the gate.
    """
    vlm.model.double()
    sums = Sums.of([one.segment for one in sequences])

    stats = new_learner()(sequences, sums)

    ce = coord = weights = 0.0
    slots = 0
    for one in sequences:
        layout = padded([one.shown], vlm, 0)
        with torch.no_grad():
            logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})[0]
        log_p = logits.log_softmax(-1)
        for place, (token, weight) in enumerate(
            zip(one.segment.ids, one.segment.ce_weights, strict=True)
        ):
            if weight:
                ce -= weight * float(log_p[place - 1, token])
                weights += weight
        for slot in one.segment.slots:
            for place, bin_ in zip(*slot, strict=True):
                row = logits[place - 1]
                p = row[coord_ids].softmax(-1)
                q = gaussian(torch.tensor([bin_]), 1000, CONFIG)[0]
                w1 = float((p.cumsum(0) - q.cumsum(0)).abs().sum()) / 1000
                mass = float(log_p[place - 1, coord_ids].exp().sum())
                coord += float(-(q * p.log()).sum()) + w1 - math.log(mass)
                slots += 1
    assert (sums.weights, sums.slots) == (weights, slots)
    assert stats.ce == pytest.approx(ce / weights, abs=1e-12)
    assert stats.coord == pytest.approx(coord / slots, abs=1e-12)


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize(
    "settings",
    [{"micro_batch": 1}, {"micro_batch": 3}, {"plan": PackPlan(200, 8, 0.01, "micro")},
     {"plan": PackPlan(400, 8, 0.01, "window")}],
    ids=["one by one", "together", "carried packs", "packs of the window"],
)  # fmt: skip
def test_batches_and_packs_change_no_gradient(
    new_learner: NewLearner, vlm: VisionModel, sequences: list[TrainingSequence],
    settings: dict[str, Any],
) -> None:  # fmt: skip
    """What both losses are divided by is known before the first forward."""
    vlm.model.double()
    sums = Sums.of([one.segment for one in sequences])
    new_learner(micro_batch=2)(sequences, sums)
    expected = gradients(vlm)

    new_learner(**settings)(sequences, sums)

    assert torch.allclose(gradients(vlm), expected, atol=1e-9)


@pytest.mark.requirement("RM-01")
def test_every_step_of_a_run_rolls_out_and_learns_one_target_a_sample(
    recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    run = add_attempt(tmp_path, recipe, kind="rollout_matching_sft")

    with opened(run) as attempt:
        result = matching_run(attempt)

    told = [e for e in events(run, "metric") if "train/loss" in e["values"]]
    assert [event["step"] for event in told] == [1, 2, 3, 4, 5, 6]
    for event in told:
        values = event["values"]
        assert values["train/samples"] == 4.0
        assert values["train/loss"] == pytest.approx(values["loss/ce"] + values["loss/coord"])
        assert not any(name.startswith(("stage2/channel", "stage2_ab/")) for name in values)
        assert "rollout_matching/strict_drop/N_valid_pred" in values
    assert told[-1]["values"]["train/loss"] < told[0]["values"]["train/loss"]
    assert result["steps"] == 6
    rows = (run.rollouts / "train-000001.jsonl").read_text().splitlines()
    assert len(rows) == 4


@pytest.mark.requirement("RM-01")
def test_a_run_that_was_stopped_goes_on_to_the_bits_of_an_unbroken_one(
    recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    whole, broken = (
        add_attempt(tmp_path, recipe, name=name, kind="rollout_matching_sft")
        for name in ("whole", "broken")
    )
    with opened(whole) as attempt:
        matching_run(attempt)

    def third() -> bool:
        return losses(events(broken)).keys() >= {3}

    with opened(broken) as attempt, rl_hooks(should_abort=third), pytest.raises(Aborted):
        matching_run(attempt)
    add_attempt(tmp_path, recipe, name="broken", kind="rollout_matching_sft")
    with opened(broken) as attempt:
        matching_run(attempt)

    assert losses(events(broken)) == losses(events(whole))


def losses(told: list[Event]) -> dict[int, float]:
    return {
        event["step"]: event["values"]["train/loss"]
        for event in told
        if event["type"] == "metric" and "train/loss" in event["values"]
    }


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("stage2_ab", {}, "is not run by the kind stage2_ab"),
        (
            "rollout_matching_sft",
            {"custom__trainer_variant": "stage2_ab_training", **AB},
            "is not run by the kind rollout_matching_sft",
        ),
        (
            "rollout_matching_sft",
            {"custom__extra__rollout_matching__rollout_buffer": {"enabled": True}},
            "remove rollout_buffer, every step rolls out afresh",
        ),
        (
            "rollout_matching_sft",
            {"custom__extra__rollout_matching__temperature": 0.5},
            "set custom.extra.rollout_matching.decoding.temperature",
        ),
        (
            "rollout_matching_sft",
            {"custom__coord_soft_ce_w1__target_sigma": 0},
            "custom.coord_soft_ce_w1.target_sigma",
        ),
    ],
)
def test_what_it_does_not_run_is_refused_by_name(
    recipe: Recipe, kind: str, change: Recipe, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        validate(kind, changed(recipe, **change))

    assert said in str(refused.value)
