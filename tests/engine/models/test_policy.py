"""Policies: built, loaded, saved, frozen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.contract.errors import RLLoopError
from engine.models import tiny
from engine.models.policy import Policy, Snapshot, build

IDS = torch.tensor([[1, 2, 3, 4]])


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = policy.model(IDS).logits
    return found


def test_the_embedded_model_is_small_and_its_seed_decides_its_weights() -> None:
    """0.4 M parameters; building it leaves the global random state alone."""
    state = torch.get_rng_state()
    one, same, other = (build(tiny.NAME, seed) for seed in (1, 1, 2))

    assert torch.equal(torch.get_rng_state(), state)
    assert 350_000 < sum(p.numel() for p in one.model.parameters()) < 450_000
    assert torch.equal(logits(one), logits(same))
    assert not torch.equal(logits(one), logits(other))


def test_the_character_tokenizer_reads_and_writes_every_character() -> None:
    """One token a character; the end token pads and never shows in the text."""
    policy = build(tiny.NAME, 0)

    ids = policy.encode("07+85=")

    assert len(ids) == 6
    assert policy.decode(ids) == "07+85="
    answer = policy.encode_answer("092")
    assert answer[-1] in policy.eos_ids
    assert policy.decode(answer) == "092"
    assert policy.tokenizer.pad_token_id == policy.tokenizer.eos_token_id


def test_a_saved_policy_is_a_plain_hugging_face_folder(policy: Policy, tmp_path: Path) -> None:
    """Anybody's from_pretrained reads it, bit by bit the same."""
    policy.save(tmp_path)

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")

    with torch.no_grad():
        assert torch.equal(model(IDS).logits, logits(policy))
    assert tuple(tokenizer("1+2=")["input_ids"]) == policy.encode("1+2=")


def test_loading_takes_the_weights_over_in_place(policy: Policy, tmp_path: Path) -> None:
    """An optimizer that holds the parameters goes on holding the right ones."""
    policy.save(tmp_path)
    before, parameters = logits(policy), list(policy.trainable().values())
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.1)

    policy.load(tmp_path, version=7)

    assert torch.equal(logits(policy), before)
    assert policy.version == 7
    assert all(a is b for a, b in zip(parameters, policy.trainable().values(), strict=True))


def test_a_snapshot_does_not_move_with_training_and_leaves_no_trace(policy: Policy) -> None:
    """Inside the block the frozen weights answer, behind it the trained ones."""
    frozen = logits(policy)
    snapshot = Snapshot(policy)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.1)
    moved = logits(policy)

    with snapshot.in_place():
        assert torch.equal(logits(policy), frozen)

    assert torch.equal(logits(policy), moved)
    assert not torch.equal(moved, frozen)


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_without_a_part_is_refused_in_one_line(
    missing: str, base_folder: Path, tmp_path: Path
) -> None:
    """Field, value, reason, remedy."""
    for entry in base_folder.iterdir():
        if entry.name not in {missing, "tokenizer_config.json"}:
            (tmp_path / entry.name).write_bytes(entry.read_bytes())

    with pytest.raises(RLLoopError, match=r"^base: cannot be loaded: ") as caught:
        build(str(tmp_path), 0)

    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_a_model_with_a_hole_in_its_weights_is_refused(base_folder: Path, tmp_path: Path) -> None:
    """Random numbers in the place of a missing layer would train, and mean nothing."""
    for entry in base_folder.iterdir():
        (tmp_path / entry.name).write_bytes(entry.read_bytes())
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - used here alone

    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(RLLoopError, match=r"no weights for model\.layers\.1\.mlp\.up_proj"):
        build(str(tmp_path), 0)
