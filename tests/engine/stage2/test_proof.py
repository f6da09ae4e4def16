"""Before step 1 of a `stage2_ab`: what it relies on is measured, and what does not hold ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.run_dir import COMPLETE, ExitCode, RunDir
from engine.models import lora
from engine.models.qwen3_vl import VisionModel
from engine.stage2.embedded import shapes, tiny_vl
from engine.stage2.learn.layout import Layout
from engine.stage2.rollout import hf
from engine.stage2.trainer import Stage2Trainer
from tests.engine.conftest import add_attempt
from tests.engine.stage2.conftest import changed, folder_of

Recipe = dict[str, Any]
Events = Callable[..., list[Event]]
Change = Callable[[dict[str, torch.Tensor]], object]

pytestmark = pytest.mark.requirement("RL-18")


@pytest.fixture
def short(ab_recipe: Recipe) -> Recipe:
    return changed(ab_recipe, training__max_steps=1, training__eval_steps=1, data__val_limit=1)


def attempt(tmp_path: Path, recipe: Recipe) -> tuple[RunDir, int]:
    run = add_attempt(tmp_path, recipe, kind="stage2_ab")
    return run, main(["run", str(run.root)])


def said(run: RunDir) -> str:
    """The error that the newest attempt ended with."""
    lines = [json.loads(line) for line in run.events.read_bytes().splitlines()]
    return str([e for e in lines if e["type"] == "note" and e["level"] == "error"][-1]["text"])


def proof(run: RunDir) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.lineage.read_bytes())["proof"]
    return found


def rewritten(file: Path, change: Change) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("tuning", ["full", "lora", "dora"])
def test_a_sound_run_says_its_figures_once_and_keeps_them_on_its_card(
    tmp_path: Path, short: Recipe, events: Events, tuning: str
) -> None:
    """An attempt that goes on measures nothing again."""
    recipe = changed(short, model__tuning=tuning)
    for _ in range(2):
        run, status = attempt(tmp_path, recipe)

        assert status == ExitCode.DONE
        assert set(proof(run)) == {"sampler", "batches", "reload"}
        assert all(one["figure"] <= one["limit"] for one in proof(run).values())
    assert [note["attempt"] for note in events(run, "note") if note["code"] == "PROOF"] == [1]


def test_the_base_that_a_run_keeps_for_its_adapter_is_read_again(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up taught it, and what was kept of it is not what was taught."""

    def one_update(_: Any, update: Callable[[int], float], **__: Any) -> tuple[int, float]:
        update(20)  # beyond the ramp
        return 1, 0.5

    monkeypatch.setattr("engine.stage2.warmup.teach", one_update)
    recipe = changed(short, model__tuning="lora", warmup={})
    run, status = attempt(tmp_path / "whole", recipe)
    assert status == ExitCode.DONE, said(run)
    save = VisionModel.save

    def broken(vlm: VisionModel, folder: Path) -> None:
        save(vlm, folder)
        rewritten(
            folder / "model.safetensors", lambda t: t["model.language_model.norm.weight"].mul_(1.2)
        )

    monkeypatch.setattr(VisionModel, "save", broken)

    run, status = attempt(tmp_path / "lossy", recipe)

    assert status == ExitCode.DECLINED
    assert "checkpoint-0 loaded anew and the model in memory differ" in said(run)


@pytest.mark.parametrize(
    ("tuning", "file", "change"),
    [
        ("full", "model.safetensors", lambda t: t["model.language_model.norm.weight"].mul_(1.2)),
        ("full", "model.safetensors", lambda t: t.pop("model.visual.merger.norm.weight")),
        ("lora", lora.WEIGHTS, lambda t: [x.add_(0.2) for x in t.values()]),
        ("dora", lora.WEIGHTS, lambda t: [x.mul_(2) for n, x in t.items() if "magnitude" in n]),
    ],
    ids=["changed", "left out", "lora", "dora"],
)
def test_a_checkpoint_that_is_not_the_model_in_memory_ends_the_run(
    tmp_path: Path, short: Recipe, tuning: str, file: str, change: Change
) -> None:
    """As often as it is tried; once it is saved whole, the same run goes on to its end."""
    recipe = changed(short, model__tuning=tuning)
    save = Stage2Trainer._save_checkpoint

    def broken(trainer: Stage2Trainer, *given: Any, **more: Any) -> None:
        save(trainer, *given, **more)
        rewritten(Path(trainer.args.output_dir or "") / "checkpoint-0" / file, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage2Trainer, "_save_checkpoint", broken)
        for _ in range(2):
            run, status = attempt(tmp_path, recipe)
            assert status == ExitCode.DECLINED
            assert "checkpoint-0 loaded anew and the model in memory differ" in said(run)
            assert not folder_of(run, 1).exists()

    run, status = attempt(tmp_path, recipe)

    assert status == ExitCode.DONE
    assert set(proof(run)) == {"sampler", "batches", "reload"}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "model.visual.merger.norm.weight"),
        ({"model__dtype": "bfloat16"}, "model.language_model.norm.weight"),
        ({"training__bf16": True}, "model.language_model.layers.1.mlp.up_proj.weight"),
    ],
    ids=["fp32", "bf16", "mixed"],
)
def test_one_number_that_is_another_one_names_its_tensor(
    tmp_path: Path,
    short: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    settings: Recipe,
    name: str,
) -> None:
    """By less than any logit shows."""
    save = Stage2Trainer._save_checkpoint

    def nudged(tensors: dict[str, torch.Tensor]) -> None:
        first = tensors[name].view(-1)[:1]
        first.copy_(torch.nextafter(first, torch.full_like(first, 9.0)))

    def broken(trainer: Stage2Trainer, *given: Any, **more: Any) -> None:
        save(trainer, *given, **more)
        rewritten(
            Path(trainer.args.output_dir or "") / "checkpoint-0" / "model.safetensors", nudged
        )

    monkeypatch.setattr(Stage2Trainer, "_save_checkpoint", broken)

    run, status = attempt(tmp_path, changed(short, **settings))

    assert status == ExitCode.DECLINED
    assert f"differ, in nats of a token: {name} is not equal; " in said(run)


def test_packs_in_which_one_text_reads_another_end_the_run(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the look at a pack before the run let it pass."""
    inputs = Layout.inputs

    def without_bounds(layout: Layout) -> dict[str, Any]:
        found = inputs(layout)
        return found | {"position_ids": found["position_ids"][-3:]}

    monkeypatch.setattr("engine.stage2.run.require_packing", lambda *_: None)
    monkeypatch.setattr(Layout, "inputs", without_bounds)

    packed = changed(
        short,
        training__packing=True,
        training__per_device_train_batch_size=1,
        training__gradient_accumulation_steps=4,
        global_max_length=400,
    )

    run, status = attempt(tmp_path, packed)

    assert status == ExitCode.DECLINED
    assert "in a packed batch of the learner and of a plain forward pass differ" in said(run)
    assert "set training.packing: false" in said(run)


@pytest.mark.parametrize("wrong", ["positions", "prompt"])
def test_rollouts_that_are_not_what_is_learnt_on_end_the_run(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The learner takes a picture's places for plain text, or the sampler reads another prompt."""
    if wrong == "positions":
        inputs = Layout.inputs

        def plain(layout: Layout) -> dict[str, Any]:
            found = inputs(layout)
            places = torch.arange(layout.ids_BT.shape[1], device=layout.ids_BT.device)
            return found | {"position_ids": places.expand_as(found["position_ids"])}

        monkeypatch.setattr(Layout, "inputs", plain)
    else:
        generate = hf.HFSampler._generate

        def another(sampler: hf.HFSampler, prompts: Any, seed: int, **more: Any) -> Any:
            read = [replace(p, ids=(*p.ids[:-1], p.ids[0])) for p in prompts]
            return generate(sampler, read, seed, **more)

        monkeypatch.setattr(hf.HFSampler, "_generate", another)

    run, status = attempt(tmp_path, short)

    assert status == ExitCode.DECLINED
    assert "log-probabilities of rollouts and of a plain forward pass differ" in said(run)
    assert "which may be at most 0.001" in said(run)


def test_step_zero_that_is_made_anew_is_proven_anew(
    tmp_path: Path, short: Recipe, events: Events
) -> None:
    """Its weights come from the model again, and may not be saved as they are."""
    style = shapes.Style(most_objects=2)
    report = shapes.write(tmp_path / "report", "report", shapes.distinct(2, 99, style), style)
    recipe = changed(short, data__report_jsonl=str(report), report_min=1)
    run, status = attempt(tmp_path, recipe)
    assert status == ExitCode.DONE
    (folder_of(run, 0) / COMPLETE).unlink()
    run.report.unlink()

    run, status = attempt(tmp_path, recipe)

    assert status == ExitCode.DONE
    assert [note["attempt"] for note in events(run, "note") if note["code"] == "PROOF"] == [1, 2]


@pytest.mark.parametrize("tuning", ["full", "lora"])
@pytest.mark.parametrize("still_lossy", [True, False])
def test_a_step_zero_that_nobody_proved_is_made_and_proven_anew(
    tmp_path: Path, short: Recipe, monkeypatch: pytest.MonkeyPatch, tuning: str, still_lossy: bool
) -> None:
    """The attempt ended between the two; its folder, read back, would equal itself."""
    recipe, save = changed(short, model__tuning=tuning), Stage2Trainer._save_checkpoint

    def broken(trainer: Stage2Trainer, *given: Any, **more: Any) -> None:
        save(trainer, *given, **more)
        [file] = (Path(trainer.args.output_dir or "") / "checkpoint-0").glob("*.safetensors")
        rewritten(file, lambda t: [x.add_(0.2) for x in t.values()])

    def powerless(*_: Any, **__: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Stage2Trainer, "_save_checkpoint", broken)
        patch.setattr("engine.stage2.run.prove_together", powerless)
        run, status = attempt(tmp_path, recipe)
        assert status not in (ExitCode.DONE, ExitCode.DECLINED)
        assert (folder_of(run, 0) / COMPLETE).exists()
    if still_lossy:
        monkeypatch.setattr(Stage2Trainer, "_save_checkpoint", broken)

    run, status = attempt(tmp_path, recipe)

    assert status == (ExitCode.DECLINED if still_lossy else ExitCode.DONE)
    if not still_lossy:
        assert set(proof(run)) == {"sampler", "batches", "reload"}


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    ["model.language_model.layers.1.mlp.up_proj.weight", "model.visual.patch_embed.proj.bias"],
)
def test_a_model_that_holds_no_number_names_the_tensor(
    tmp_path: Path, short: Recipe, number: float, name: str
) -> None:
    """Of the text decoder or of the vision tower: no learning rate is to blame."""
    folder = tiny_vl.save(tmp_path / "vl", seed=0, hidden=64, layers=2)
    rewritten(folder / "model.safetensors", lambda t: t[name].view(-1)[:1].fill_(number))

    run, status = attempt(tmp_path, changed(short, model__path=str(folder)))

    assert status == ExitCode.CONFIG
    word = "infinity" if number == float("-inf") else "NaN"
    assert f"has {word} in {name}, read as float32" in said(run)


def test_a_number_too_large_for_the_type_it_is_read_in_is_told_with_that_type(
    tmp_path: Path, short: Recipe
) -> None:
    """The file is sound; another dtype would do."""
    folder = tiny_vl.save(tmp_path / "vl", seed=0, hidden=64, layers=2)
    name = "model.language_model.norm.weight"
    rewritten(folder / "model.safetensors", lambda t: t[name].view(-1)[:1].fill_(3.4e38))

    run, status = attempt(
        tmp_path, changed(short, model__path=str(folder), model__dtype="bfloat16")
    )

    assert status == ExitCode.CONFIG
    assert f"has infinity in {name}, read as bfloat16" in said(run)
    assert "wider model.dtype" in said(run)


@pytest.mark.parametrize(
    "settings", [{"model__dtype": "bfloat16"}, {"training__bf16": True}], ids=["bf16", "mixed"]
)
def test_another_precision_is_proven_with_limits_of_its_own(
    tmp_path: Path, short: Recipe, settings: Recipe
) -> None:
    run, status = attempt(tmp_path, changed(short, **settings))

    assert status == ExitCode.DONE
    assert proof(run)["sampler"]["limit"] == pytest.approx(0.1)
