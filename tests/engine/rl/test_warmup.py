"""The supervised warm-up and its cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.data import Question
from engine.hooks import Aborted, rl_hooks
from engine.models.policy import Policy
from engine.rl.warmup import WarmupError, WarmupReport, recipe_hash, warm_up, warm_up_cached

ROWS = [Question(f"q{i}", f"{i}=", "7") for i in range(40)]


def teach(policy: Policy, scores: list[float], **settings: Any) -> tuple[WarmupReport, list[float]]:
    """Warm up with an accuracy that is written down in advance; the report and the losses."""
    losses: list[float] = []
    config = WarmupConfig(**{"batch_size": 16, "eval_every": 5, "max_steps": 40, **settings})
    report = warm_up(
        policy,
        ROWS,
        config,
        seed=0,
        evaluate=lambda: scores.pop(0),
        on_step=lambda _step, loss: losses.append(loss),
        on_score=lambda _step, _score: None,
    )
    return report, losses


def test_it_stops_at_the_target_and_not_at_a_step_count(policy: Policy) -> None:
    """The third look sees enough; training and end token were taught on the way."""
    report, losses = teach(policy, [0.1, 0.54, 0.56, 0.99], target_heldout=0.55)

    assert report == WarmupReport(steps=15, score=0.56, cached=False)
    assert losses[-1] < losses[0] / 10
    with torch.no_grad():
        ids = torch.tensor([policy.encode("3=")])
        first = policy.model(ids).logits[0, -1].argmax().item()
        then = policy.model(torch.cat([ids, torch.tensor([[first]])], 1)).logits[0, -1].argmax()
    assert policy.decode([first]) == "7"
    assert then.item() in policy.eos_ids


def test_a_target_out_of_reach_fails_with_what_was_reached(policy: Policy) -> None:
    """The message names the best score, the setting and two ways out."""
    with pytest.raises(WarmupError, match=r"10 steps reached 0\.20 .*target_heldout=0\.5; raise"):
        teach(policy, [0.2, 0.1], target_heldout=0.5, max_steps=10)


def test_an_abort_lands_between_two_steps(policy: Policy) -> None:
    """Minutes of teaching are not waited for."""
    with pytest.raises(Aborted), rl_hooks(should_abort=lambda: True):
        teach(policy, [])


def test_the_same_recipe_is_learnt_once(policy: Policy, tmp_path: Path) -> None:
    """The second run takes the weights, bit by bit, and says that it did."""

    def learn() -> WarmupReport:
        with torch.no_grad():
            for parameter in policy.trainable().values():
                parameter.add_(1.0)
        return WarmupReport(9, 0.6, cached=False)

    warnings: list[tuple[str, str]] = []
    folder = tmp_path / "cache" / "warmup-x"
    first = warm_up_cached(folder, policy, learn, lambda *w: warnings.append(w))
    learnt = {name: p.detach().clone() for name, p in policy.trainable().items()}
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.zero_()

    second = warm_up_cached(folder, policy, learn, lambda *w: warnings.append(w))

    assert (first.cached, second) == (False, WarmupReport(9, 0.6, cached=True))
    assert all(torch.equal(p, learnt[name]) for name, p in policy.trainable().items())
    assert warnings == []
    (folder / "model" / "model.safetensors").write_bytes(b"torn")
    third = warm_up_cached(folder, policy, learn, lambda *w: warnings.append(w))
    assert third.cached is False
    assert [code for code, _ in warnings] == ["CHECKPOINT_CORRUPT"]
    assert warm_up_cached(folder, policy, learn, lambda *w: warnings.append(w)).cached is True


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"max_steps": 99}, True),
        ({"lr": 0.5}, True),
        ({"seed": 9}, False),
        ({"warmup": {"lr": 1e-3}}, False),
        ({"heldout_temp": 0.0}, False),
        ({"tuning": "lora"}, False),
    ],
)
def test_the_recipe_is_what_the_weights_depend_on(change: dict[str, Any], same: bool) -> None:
    """Settings of the loop behind it do not cost another warm-up."""
    base = {"base": "embedded:qwen3-tiny", "tuning": "full", "warmup": {}}
    one, other = RLRunConfig(**base), RLRunConfig(**{**base, **change})

    assert (recipe_hash(one, "split") == recipe_hash(other, "split")) is same
    assert recipe_hash(one, "split") != recipe_hash(one, "another split")
