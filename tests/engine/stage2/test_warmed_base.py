"""A low-rank run with a warm-up: the model that was warmed up is part of the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from engine.__main__ import main as engine
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.run_dir import RunDir
from engine.models.lora import without_deprecations
from engine.models.qwen3_vl import VisionModel, forward, load
from engine.run.stop import Aborted, rl_hooks
from engine.run.warmup import SFTSchedule
from engine.stage2 import opening
from engine.stage2 import run as stage2
from engine.stage2.opening import adapted
from tests.engine.conftest import add_attempt, opened
from tests.engine.stage2.conftest import changed, folder_of

Events = Callable[..., list[Event]]
Recipe = dict[str, Any]
LAST = 3


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two updates that move every weight: what they are worth is not asked here."""

    def two_updates(
        _schedule: SFTSchedule, update: Callable[[int], float], **_: Any
    ) -> tuple[int, float]:
        update(20)  # beyond the ramp
        update(21)
        return 2, 0.5

    monkeypatch.setattr("engine.stage2.warmup.teach", two_updates)


@pytest.fixture(params=["lora", "dora"])
def recipe(request: pytest.FixtureRequest, ab_recipe: Recipe) -> Recipe:
    return changed(
        ab_recipe,
        model__tuning=request.param,
        model__lora_rank=2,
        warmup={},
        training__max_steps=LAST,
        training__save_steps=1,
    )


def done(root: Path, recipe: Recipe, name: str = "run") -> RunDir:
    """One more attempt of a run, to its end."""
    run = add_attempt(root, recipe, name=name, kind="stage2_ab")
    with opened(run) as attempt:
        stage2.run(attempt)
    return run


def stopped(root: Path, recipe: Recipe, name: str = "run", step: int = 1) -> RunDir:
    """A run of one attempt that was stopped behind a step."""
    run = add_attempt(root, recipe, name=name, kind="stage2_ab")
    standing = folder_of(run, step) / "complete.json"
    with (
        opened(run) as attempt,
        pytest.raises(Aborted),
        rl_hooks(should_abort=standing.exists),
    ):
        stage2.run(attempt)
    return run


def adapter(run: RunDir, step: int = LAST) -> dict[str, Tensor]:
    return load_file(folder_of(run, step) / "adapter_model.safetensors")


def losses(events: list[Event]) -> dict[int, float]:
    """Those that count: a step given up half-way is told again."""
    return {
        event["step"]: event["values"]["train/loss"]
        for event in events
        if event["type"] == "metric" and "train/loss" in event["values"]
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def logits(model: Any) -> Tensor:
    given = {"input_ids": torch.arange(20)[None], "position_ids": torch.arange(20).expand(3, 1, 20)}
    with torch.inference_mode():
        return forward(model.eval(), given)


def plain(path: str) -> VisionModel:
    return load(path, dtype="float32", attn_implementation="sdpa")


def on_its_base(checkpoint: Path) -> Any:
    """What anybody gets who follows the adapter's own config."""
    base: Any = plain(base_named_by(checkpoint)).model
    with without_deprecations():
        return PeftModel.from_pretrained(base, str(checkpoint))


def base_named_by(checkpoint: Path) -> str:
    config = json.loads((checkpoint / "adapter_config.json").read_bytes())
    return str(config["base_model_name_or_path"])


@pytest.mark.requirement("AB-06")
def test_a_low_rank_run_that_was_stopped_goes_on_with_its_warmed_up_model(
    recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    """Bit for bit what an unbroken one comes to, whatever the cache holds by then."""
    whole = done(tmp_path, recipe, "whole")
    run = stopped(tmp_path, recipe)
    shutil.rmtree(tmp_path / "cache")

    done(tmp_path, recipe)

    assert events(run, "started")[-1]["resumed_from"] == 1
    assert same(adapter(run), adapter(whole))
    assert losses(events(run)) == losses(events(whole))


def test_a_published_adapter_names_the_model_it_was_trained_on(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On that model it answers as the run's own did, and on the one of the config it would not."""
    trained: list[VisionModel] = []

    def spied(*given: Any) -> VisionModel:
        trained.append(adapted(*given))
        return trained[-1]

    monkeypatch.setattr(opening, "adapted", spied)

    run = done(tmp_path, recipe)

    last = folder_of(run, LAST)
    assert base_named_by(last) == str(run.base)
    assert torch.equal(logits(on_its_base(last)), logits(trained[0].model))
    assert not torch.equal(
        logits(plain(str(run.base)).model), logits(plain(recipe["model"]["path"]).model)
    )


def test_a_run_that_was_moved_is_merged_with_the_model_beside_its_adapter(
    recipe: Recipe, tmp_path: Path
) -> None:
    """Of the place it was trained at nothing may be left, or something else by now."""
    run = done(tmp_path, recipe)
    expected = logits(on_its_base(folder_of(run, LAST)))
    run.root.rename(tmp_path / "moved")
    moved = RunDir(tmp_path / "moved")

    assert engine(["export", str(folder_of(moved, LAST)), str(tmp_path / "merged")]) == 0

    apart = logits(plain(str(tmp_path / "merged")).model) - expected
    assert float(apart.abs().max()) <= 1e-4


def test_an_adapter_is_not_merged_with_a_damaged_model(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came out would load, and answer wrongly."""
    run = done(tmp_path, recipe)
    spoil(run.base / "model.safetensors")

    assert engine(["export", str(folder_of(run, LAST)), str(tmp_path / "merged")]) == 2

    assert f"{run.base} is damaged" in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("harm", [shutil.rmtree, lambda base: spoil(base / "model.safetensors")])
def test_a_warmed_up_model_that_is_lost_comes_back_from_the_cache(
    harm: Callable[[Path], None], recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    """The same weights again, which is said."""
    whole = done(tmp_path, recipe, "whole")
    run = stopped(tmp_path, recipe)
    harm(run.base)

    done(tmp_path, recipe)

    assert "BASE_RESTORED" in {note["code"] for note in events(run, "note")}
    assert same(adapter(run), adapter(whole))


def test_a_run_whose_warmed_up_model_is_lost_for_good_is_refused(
    recipe: Recipe, tmp_path: Path
) -> None:
    """Each time anew: the adapter means nothing on any other model."""
    run = stopped(tmp_path, recipe)
    spoil(run.base / "model.safetensors")
    shutil.rmtree(tmp_path / "cache")

    for _ in range(2):
        with pytest.raises(ConfigError, match=r"warmed-up model .* cockpit retry 1 --fresh"):
            done(tmp_path, recipe)

    assert (folder_of(run, 1) / "complete.json").exists()


def test_a_run_that_trains_every_weight_keeps_no_second_model(
    ab_recipe: Recipe, tmp_path: Path
) -> None:
    """Its checkpoints are whole models."""
    run = done(tmp_path, changed(ab_recipe, warmup={}, training__max_steps=1))

    assert not run.base.exists()
