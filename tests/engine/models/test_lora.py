"""LoRA through PEFT on a real tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.contract.errors import ConfigError, RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.registry import validate
from engine.models.lora import without_deprecations
from engine.models.policy import Policy, Snapshot, build
from engine.rl.parts import build_policy

IDS = torch.tensor([[1, 2, 3, 4]])


def lora_policy(base: Path, **settings: Any) -> Policy:
    defaults = {"tuning": "lora", "lora_rank": 4, "lora_alpha": 8}
    return build_policy(RLRunConfig(base=str(base), **(defaults | settings)))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


def nudge(policy: Policy) -> None:
    """Training, in one line."""
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.05)


def test_a_zero_adapter_changes_nothing_and_covers_every_linear_layer(base_folder: Path) -> None:
    """B is 0 at first; q, k, v, o, gate, up and down of both layers have their matrices."""
    policy = lora_policy(base_folder)

    assert torch.equal(logits(policy.model), logits(build(str(base_folder), 0).model))
    assert len(policy.trainable()) == 2 * 7 * 2
    assert all("lora_" in name for name in policy.trainable())
    config = policy.model.peft_config["default"]
    assert (config.r, config.lora_alpha) == (4, 8)


def test_the_seed_decides_a_zero_adapters_random_half(base_folder: Path) -> None:
    """Two runs of one seed start alike."""
    one, same, other = (lora_policy(base_folder, seed=seed) for seed in (1, 1, 2))
    name = next(n for n in one.trainable() if "lora_A" in n)

    assert torch.equal(one.trainable()[name], same.trainable()[name])
    assert not torch.equal(one.trainable()[name], other.trainable()[name])


@pytest.mark.requirement("RL-07")
def test_a_saved_adapter_is_a_plain_peft_folder(base_folder: Path, tmp_path: Path) -> None:
    """PEFT alone puts it on the base, bit by bit the same; its config names the base."""
    policy = lora_policy(base_folder)
    nudge(policy)
    policy.save(tmp_path)

    model = AutoModelForCausalLM.from_pretrained(base_folder)
    with without_deprecations():
        reloaded = PeftModel.from_pretrained(model, tmp_path / "adapter")

    assert torch.equal(logits(reloaded), logits(policy.model))
    assert {entry.name for entry in (tmp_path / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == str(base_folder)


def test_loading_an_adapter_keeps_the_parameters_an_optimizer_holds(
    base_folder: Path, tmp_path: Path
) -> None:
    """Same objects, saved values."""
    policy = lora_policy(base_folder)
    nudge(policy)
    policy.save(tmp_path)
    saved, parameters = logits(policy.model), list(policy.trainable().values())
    nudge(policy)

    policy.load(tmp_path, version=3)

    assert torch.equal(logits(policy.model), saved)
    assert policy.version == 3
    assert all(a is b for a, b in zip(parameters, policy.trainable().values(), strict=True))


def test_dora_trains_magnitudes_beside_directions_and_starts_at_the_base(
    base_folder: Path, tmp_path: Path
) -> None:
    """A vector a layer more than LoRA; PEFT alone reads what is saved, the snapshot freezes it."""
    policy = lora_policy(base_folder, tuning="dora")
    reference = Snapshot(policy)
    base = logits(build(str(base_folder), 0).model)

    assert torch.allclose(logits(policy.model), base, atol=1e-5)
    assert sum("magnitude" in name for name in policy.trainable()) == 2 * 7

    nudge(policy)
    policy.save(tmp_path)
    with without_deprecations():
        reloaded = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(base_folder), tmp_path / "adapter"
        )

    assert not torch.allclose(logits(policy.model), base, atol=1e-3)
    assert torch.allclose(logits(reloaded), logits(policy.model), atol=1e-6)
    with reference.in_place():
        assert torch.allclose(logits(policy.model), base, atol=1e-5)


@pytest.mark.requirement("RL-07")
def test_the_reference_of_an_initial_adapter_is_the_adapter_and_not_the_bare_base(
    base_folder: Path, tmp_path: Path
) -> None:
    """Switching the adapter off would be another policy than that of step 0."""
    initial = lora_policy(base_folder)
    nudge(initial)
    initial.save(tmp_path)
    policy = lora_policy(base_folder, adapter_init=str(tmp_path / "adapter"))
    step_zero = logits(policy.model)
    reference = Snapshot(policy)
    nudge(policy)

    with reference.in_place():
        frozen = logits(policy.model)
    with policy.model.disable_adapter():
        bare = logits(policy.model)

    assert torch.equal(frozen, step_zero)
    assert torch.equal(step_zero, logits(initial.model))
    assert not torch.allclose(bare, step_zero, atol=1e-3)


def test_an_adapter_of_another_base_is_refused_in_one_line(
    base_folder: Path, tmp_path: Path
) -> None:
    """Field, value, reason, remedy."""
    lora_policy(base_folder).save(tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    narrower = {name: t[:, :-1].contiguous() for name, t in load_file(path).items()}
    save_file(narrower, path)

    with pytest.raises(RLLoopError, match=r"^adapter_init: does not fit the base: ") as caught:
        lora_policy(base_folder, adapter_init=str(tmp_path / "adapter"))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("saved", "asked"), [("lora", "dora"), ("dora", "lora")])
def test_an_adapter_stays_the_kind_it_was_saved_as(
    saved: str, asked: str, base_folder: Path, tmp_path: Path
) -> None:
    """PEFT reads it as what it is: the run would train something else than its config says."""
    lora_policy(base_folder, tuning=saved).save(tmp_path)
    raw = {"base": str(base_folder), "adapter_init": str(tmp_path / "adapter"), "corpus_min": 1}

    with pytest.raises(ConfigError, match=f"tuning: does not fit adapter_init.*{asked}") as caught:
        validate("rl_run", raw | {"tuning": asked})
    assert f"set tuning: {saved}" in str(caught.value)

    validate("rl_run", raw | {"tuning": saved, "data": {"source": "embedded:word_problems"}})


def test_the_operators_adapter_is_the_default_of_lora_runs_alone(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FK_RL_ADAPTER_INIT fills what a config leaves out; a null stays a null."""
    monkeypatch.setenv("FK_RL_ADAPTER_INIT", str(tmp_path))
    base = str(base_folder)

    assert RLRunConfig(base=base).adapter_init == str(tmp_path)
    assert RLRunConfig(base=base, adapter_init=None).adapter_init is None
    assert RLRunConfig(base=base, tuning="full").adapter_init is None
