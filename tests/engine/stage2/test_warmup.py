"""The warm-up: softened targets, its end, and its place in the cache."""

from __future__ import annotations

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
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.warmup import Warmup, WarmupError, WarmupReport, cached, recipe_hash, softened
from tests.engine.stage2.conftest import changed

NewWarmup = Callable[..., Warmup]


@pytest.fixture
def new_warmup(vlm: VisionModel, reader: PromptReader, coord_ids: torch.Tensor) -> NewWarmup:
    def make(scores: list[float], losses: list[float]) -> Warmup:
        config = WarmupConfig(target_f1=0.5, max_steps=4, batch_size=4, eval_every=2)
        return Warmup(
            vlm,
            reader,
            config,
            coord_ids,
            0,
            evaluate=lambda: scores.pop(0),
            on_step=lambda _, loss: losses.append(loss),
            on_score=lambda *_: None,
        )

    return make


def test_a_softened_target_is_a_gaussian_over_the_bins() -> None:
    """Rows add up to 1, peak at their bin, and fall by e^-1/2 one sigma away."""
    soft = softened(torch.tensor([500, 0]), sigma=20.0)

    assert torch.allclose(soft.sum(-1), torch.ones(2))
    assert soft.argmax(-1).tolist() == [500, 0]
    assert float(soft[0, 520] / soft[0, 500]) == pytest.approx(2.718281828**-0.5, rel=1e-4)
    assert float(soft[0, 520]) == pytest.approx(float(soft[0, 480]), rel=1e-4)


def test_it_ends_at_its_target_and_lowers_its_loss(
    new_warmup: NewWarmup, records: list[Record]
) -> None:
    """Looks at the validation records every eval_every steps."""
    losses: list[float] = []

    report = new_warmup([0.1, 0.6], losses)(records, seed=1)

    assert (report.steps, report.f1) == (4, 0.6)
    assert losses[-1] < losses[0]


def test_a_target_that_is_not_reached_fails_with_what_to_do(
    new_warmup: NewWarmup, records: list[Record]
) -> None:
    """AB training of a model that cannot write a box would learn nothing."""
    with pytest.raises(WarmupError, match="raise max_steps, or lower the target"):
        new_warmup([0.1, 0.2], [])(records, seed=1)


def test_a_warm_up_that_is_no_number_ends_at_once(
    new_warmup: NewWarmup, records: list[Record], vlm: VisionModel
) -> None:
    """No weight takes it, and the remaining steps would be in vain."""
    losses: list[float] = []
    next(vlm.model.parameters()).data.fill_(math.nan)

    with pytest.raises(WarmupError, match=r"warm-up's loss is nan; lower warmup\.lr"):
        new_warmup([], losses)(records, seed=1)

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


def test_an_equal_recipe_is_trained_once(vlm: VisionModel, tmp_path: Path) -> None:
    """Later runs load its weights, bit for bit, and say so."""
    weight = vlm.model.get_input_embeddings().weight  # type: ignore[operator]

    def train() -> WarmupReport:
        with torch.no_grad():
            weight.add_(1.0)
        return WarmupReport(7, 0.5, 1.0)

    folder = tmp_path / "warmup-x"
    assert not cached(folder, vlm, train, lambda *_: None).cached
    trained = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()

    again = cached(folder, vlm, train, lambda *_: None)

    assert again == WarmupReport(7, 0.5, 1.0, cached=True)
    assert torch.equal(weight, trained)
