"""Architectures as Transformers builds them: sampled, scored, saved and loaded as one model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from engine.data.rows import Question
from engine.models import tiny
from engine.models.logprobs import backbone_and_head
from engine.models.policy import Policy, build
from engine.rl.scoring import Batch, score
from engine.sampling.decoding import way_of
from engine.sampling.hf import HFSampler
from tests.engine.models import zoo

TASKS = [Question("a", "2=", "2"), Question("b", "12+34=", "46"), Question("c", "7+7=", "14")]


def policy_of(name: str, folder: Path) -> Policy:
    return build(str(zoo.saved(name, folder, tiny.build_tokenizer())), seed=0)


def logits(policy: Policy) -> torch.Tensor:
    ids = torch.arange(3, 15)[None] % policy.known_tokens
    with torch.no_grad():
        found: torch.Tensor = policy.model(input_ids=ids, use_cache=False).logits
    return found


@pytest.mark.requirement("RL-18")
@pytest.mark.parametrize("name", zoo.ZOO)
def test_what_is_sampled_is_what_is_scored_and_what_is_saved_is_what_was_in_memory(
    tmp_path: Path, name: str
) -> None:
    """Of every architecture: prompts of several lengths, rows that end early, an update, a reload,
    and the names on disk.
    """
    policy = policy_of(name, tmp_path / "base")
    assert way_of(policy) == documented()[name]
    sampler = HFSampler(policy, 0, "train", temp=1.0, max_new_tokens=6, batch_size=8)
    rollouts = [rollout for group in sampler(TASKS, 3) for rollout in group]

    backbone = backbone_and_head(policy.model)
    scored = score(policy.model, Batch.of(rollouts, policy.device), 1.0, backbone=backbone)
    trained = scored.logprobs_BT[scored.logprobs_BT != 0]
    sampled = torch.tensor([value for rollout in rollouts for value in rollout.logprobs])
    torch.testing.assert_close(trained.detach(), sampled, atol=1e-3, rtol=0)

    scored.logprobs_BT.sum().backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(policy.trainable().values(), lr=1e-3).step()
    policy.save(tmp_path)
    again = build(str(tmp_path / "model"), seed=0)
    wanted = logits(policy)
    torch.testing.assert_close(logits(again), wanted, atol=1e-5, rtol=0)
    assert names(tmp_path / "model") == names(tmp_path / "base")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.zero_()
        for buffer in policy.model.buffers():
            if buffer.dtype.is_floating_point:
                buffer.add_(1)
    fresh = policy_of(name, tmp_path / "other")
    fresh.load(tmp_path, version=1)
    torch.testing.assert_close(logits(fresh), wanted, atol=1e-5, rtol=0)


@pytest.mark.requirement("RL-18")
def test_the_page_names_every_architecture_that_is_tried() -> None:
    """And no other: how each of them runs is held equal above."""
    assert documented().keys() == zoo.ZOO.keys()


def documented() -> dict[str, str]:
    """Architecture → how it runs, as docs/models.md has it."""
    page = Path(__file__).resolve().parents[3] / "docs" / "models.md"
    rows = (line.split(" | ") for line in page.read_text("utf-8").splitlines())
    found = [row for row in rows if len(row) == 2 and row[0].startswith("| `")]
    return {name.strip("| `"): way.removesuffix(" |") for name, way in found}


def names(folder: Path) -> set[str]:
    """Of the tensors on disk."""
    found = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            found |= set(file.keys())
    return found
