"""The warm-up: softened targets, its end, and its place in the cache."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.sources.records import Record
from engine.contract.stage2.config import WarmupConfig, read_config
from engine.models.qwen3_vl import VisionModel
from engine.run.warmup import SFTSchedule, WarmupError, teach
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.warmup import Warmup, recipe_hash, softened
from tests.engine.stage2.conftest import changed

Taught = Callable[..., tuple[int, float]]


@pytest.fixture
def taught(reader: PromptReader, records: list[Record]) -> Taught:
    """Teach with scores that are written down in advance."""

    def teach_with(scores: list[float], losses: list[float]) -> tuple[int, float]:
        config = WarmupConfig(target_f1=0.5, max_steps=4, batch_size=4, eval_every=2)
        schedule = SFTSchedule("warmup", "warmup.target_f1", ("loss", "score"), 0.5, 4, 2)
        return teach(
            schedule,
            Warmup(reader, config, records, seed=1),
            evaluate=lambda: scores.pop(0),
            listen=lambda _, name, value: losses.append(value) if name == "loss" else None,
        )

    return teach_with


def test_a_softened_target_is_a_gaussian_over_the_bins() -> None:
    """Rows add up to 1, peak at their bin, and fall by e^-1/2 one sigma away."""
    soft = softened(torch.tensor([500, 0]), sigma=20.0)

    assert torch.allclose(soft.sum(-1), torch.ones(2))
    assert soft.argmax(-1).tolist() == [500, 0]
    assert float(soft[0, 520] / soft[0, 500]) == pytest.approx(2.718281828**-0.5, rel=1e-4)
    assert float(soft[0, 520]) == pytest.approx(float(soft[0, 480]), rel=1e-4)


def test_it_ends_at_its_target_and_lowers_its_loss(
    taught: Taught,
) -> None:
    """Looks at the validation records every eval_every steps."""
    losses: list[float] = []

    reached = taught([0.1, 0.6], losses)

    assert reached == (4, 0.6)
    assert losses[-1] < losses[0]


def test_a_batch_in_several_passes_teaches_what_it_teaches_in_one(
    reader: PromptReader, records: list[Record]
) -> None:
    """To rounding: both means are over the whole batch, however few tokens a pass may have."""
    config = WarmupConfig(batch_size=6)
    begun = copy.deepcopy(reader.vlm.model.state_dict())
    found = []
    for most in (100_000, 150, 1):
        reader.vlm.model.load_state_dict(begun)
        loss = Warmup(reader, config, records, seed=1, most_tokens=most)(20)
        grads = [p.grad.clone() for p in reader.vlm.model.parameters() if p.grad is not None]
        found.append((loss, grads))

    (whole, ours), *others = found
    for loss, theirs in others:
        assert loss == pytest.approx(whole, rel=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_target_that_is_not_reached_fails_with_what_to_do(
    taught: Taught,
) -> None:
    """AB training of a model that cannot write a box would learn nothing."""
    with pytest.raises(
        WarmupError, match=r"reached 0\.20 .*raise warmup\.max_steps or lower the target"
    ):
        taught([0.2, 0.1], [])


def test_a_warm_up_that_is_no_number_ends_at_once(taught: Taught, vlm: VisionModel) -> None:
    """No weight takes it, and the remaining steps would be in vain."""
    losses: list[float] = []
    next(vlm.model.parameters()).data.fill_(math.nan)

    with pytest.raises(WarmupError, match=r"warm-up's loss is nan; lower warmup\.lr"):
        taught([], losses)

    assert losses == []


def other_object(records: list[Record]) -> list[Record]:
    [first, *rest] = records
    return [replace(first, objects=(replace(first.objects[0], desc="other"),)), *rest]


def shorter(records: list[Record]) -> list[Record]:
    return records[:-1]


@pytest.mark.parametrize("change", [other_object, shorter])
@pytest.mark.parametrize("split", ["train", "val"])
def test_other_records_are_another_recipe(
    change: Callable[[list[Record]], list[Record]],
    split: str,
    ab_recipe: dict[str, Any],
    records: list[Record],
) -> None:
    """By what they hold and how many are in use; the path of their file says neither."""
    config = read_config(changed(ab_recipe, warmup={}))
    given = {"train": records, "val": records[:4]}

    one = recipe_hash(config, "model", **given)
    other = recipe_hash(config, "model", **(given | {split: change(given[split])}))

    assert one != other
    assert one == recipe_hash(config, "model", **given)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"model__tuning": "lora"}, True),
        ({"model__path": "elsewhere/model"}, True),
        ({"training__learning_rate": 1.0}, True),
        ({"custom__extra__rollout_matching__decoding": {"temperature": 1.0}}, True),
        ({"custom__extra__rollout_matching__fp_cost": 1.0}, False),
        ({"model__dtype": "bfloat16"}, False),
        ({"training__seed": 3}, False),
        ({"warmup": {"lr": 0.5}}, False),
    ],
)
def test_a_recipe_is_what_the_warmed_up_weights_depend_on(
    change: dict[str, Any], same: bool, ab_recipe: dict[str, Any], records: list[Record]
) -> None:
    """Of the model what stands at its path, said beside the config."""
    raw = changed(ab_recipe, warmup={})
    one, other = read_config(raw), read_config(changed(raw, **change))

    found = [recipe_hash(config, "model", records, records) for config in (one, other)]

    assert (found[0] == found[1]) is same
    assert found[0] != recipe_hash(one, "another model", records, records)


def test_an_overwritten_picture_is_another_recipe(
    ab_recipe: dict[str, Any], records: list[Record], tmp_path: Path
) -> None:
    """Told by size and time: to read every picture would take longer than the warm-up."""
    config = read_config(changed(ab_recipe, warmup={}))
    picture = tmp_path / "a.png"
    picture.write_bytes(records[0].images[0].read_bytes())
    own = [replace(records[0], images=(picture,))]
    before = recipe_hash(config, "model", own, own)

    picture.write_bytes(records[1].images[0].read_bytes() + b"\n")

    assert recipe_hash(config, "model", own, own) != before
