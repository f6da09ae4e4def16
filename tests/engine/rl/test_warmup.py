"""The supervised training before step 0, and its cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.contract.rl.format import FormatConfig
from engine.data.rows import Question
from engine.data.split import Split, carve
from engine.models.policy import Policy
from engine.rewards.of_run import build_reward
from engine.rl.parts import build_gate, build_prompts
from engine.rl.warmup import (
    Sft,
    WarmupReport,
    examples_of,
    prepare,
    recipe_hash,
)
from engine.run.stop import Aborted, rl_hooks
from engine.run.warmup import SFTSchedule, WarmupCache, WarmupError, teach

ROWS = [Question(f"q{i}", f"{i}=", "7") for i in range(40)]
SPLIT = carve(ROWS, heldout_frac=0.2, select_frac=0.5, seed=0)
SCHEDULE = SFTSchedule(
    name="warmup",
    setting="warmup.target_heldout",
    series=("warmup/loss", "warmup/heldout"),
    target=0.55,
    max_steps=40,
    eval_every=5,
)


def taught(policy: Policy, scores: list[float], **changes: Any) -> tuple[Any, list[float]]:
    """Teach with an accuracy that is written down in advance; (steps, score) and the losses."""
    losses: list[float] = []
    examples = examples_of(policy, ROWS, FormatConfig(), lambda q: policy.encode(q.prompt))
    settings = WarmupConfig(batch_size=16, lr=3e-3)
    reached = teach(
        replace(SCHEDULE, **changes),
        Sft(policy, examples, settings, "0:warmup"),
        evaluate=lambda: scores.pop(0),
        listen=lambda _step, name, value: losses.append(value) if name == "warmup/loss" else None,
    )
    return reached, losses


def test_it_stops_at_the_target_and_not_at_a_step_count(policy: Policy) -> None:
    """The third look sees enough; training and end token were taught on the way."""
    reached, losses = taught(policy, [0.1, 0.54, 0.56, 0.99])

    assert reached == (15, 0.56)
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
        taught(policy, [0.2, 0.1], target=0.5, max_steps=10)


def test_an_abort_lands_between_two_steps(policy: Policy) -> None:
    """Minutes of teaching are not waited for."""
    with pytest.raises(Aborted), rl_hooks(should_abort=lambda: True):
        taught(policy, [])


LEARNT = asdict(WarmupReport(9, 0.6, cached=False))


def cache_of(folder: Path, policy: Policy, warn: Any = print) -> WarmupCache:
    return WarmupCache(folder, policy.save, lambda kept: policy.load(kept, version=0), warn)


def test_the_same_recipe_is_learnt_once(policy: Policy, tmp_path: Path) -> None:
    """The second run takes the weights, bit by bit, and says that it did."""

    def learn() -> dict[str, Any]:
        with torch.no_grad():
            for parameter in policy.trainable().values():
                parameter.add_(1.0)
        return LEARNT

    warnings: list[tuple[str, str]] = []
    folder = tmp_path / "cache" / "warmup-x"
    first = cache_of(folder, policy, lambda *w: warnings.append(w)).kept_or(learn)
    learnt = {name: p.detach().clone() for name, p in policy.trainable().items()}
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.zero_()

    second = cache_of(folder, policy, lambda *w: warnings.append(w)).kept_or(learn)

    assert (first, second) == (LEARNT, LEARNT | {"cached": True})
    assert all(torch.equal(p, learnt[name]) for name, p in policy.trainable().items())
    assert warnings == []
    (folder / "model" / "model.safetensors").write_bytes(b"torn")
    third = cache_of(folder, policy, lambda *w: warnings.append(w)).kept_or(learn)
    assert third["cached"] is False
    assert [code for code, _ in warnings] == ["CHECKPOINT_CORRUPT"]
    assert cache_of(folder, policy, lambda *w: warnings.append(w)).kept_or(learn)["cached"] is True


def test_a_recipe_is_kept_where_a_killed_process_of_the_same_number_was_keeping_it(
    policy: Policy, tmp_path: Path
) -> None:
    """In a container the numbers begin anew with every start."""
    folder = tmp_path / "cache" / "warmup-x"
    left = folder.with_name(f".{folder.name}.{os.getpid()}")
    (left / "model").mkdir(parents=True)

    report = cache_of(folder, policy).kept_or(lambda: LEARNT)

    assert not report["cached"]
    assert not left.exists()
    assert cache_of(folder, policy).kept_or(pytest.fail)["cached"]


def name_of(config: RLRunConfig, split: Split = SPLIT, stands: Mapping[str, str] = {}) -> str:
    """`stands`: what is to be found at a path."""
    return recipe_hash(config, split, lambda place: stands.get(str(place), place))


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"max_steps": 99}, True),
        ({"lr": 0.5}, True),
        ({"seed": 9}, False),
        ({"warmup": {"lr": 1e-3}}, False),
        ({"heldout_temp": 0.0}, False),
        ({"tuning": "lora"}, False),
        ({"format": {"reward": 0.1}}, True),
        ({"format": {"demonstration": "= {answer}"}}, False),
        ({"prompting": {"assistant_prefix": "0"}}, False),
        ({"sampling": {"top_k": 3}}, False),
        ({"sampling": {"duplicates_alarm": 0.9}}, True),
    ],
)
def test_the_recipe_is_what_the_weights_depend_on(change: dict[str, Any], same: bool) -> None:
    """Settings of the loop behind it do not cost another warm-up."""
    base = {"base": "embedded:qwen3-tiny", "tuning": "full", "warmup": {}}
    one, other = RLRunConfig(**base), RLRunConfig(**{**base, **change})

    assert (name_of(one) == name_of(other)) is same


def test_other_rows_or_other_worked_answers_are_another_recipe() -> None:
    """The split's hash covers questions and answers; what is taught may be more."""
    config = RLRunConfig(base="embedded:qwen3-tiny", tuning="full", warmup={})
    elsewhere = carve(ROWS, heldout_frac=0.2, select_frac=0.5, seed=1)
    worked = replace(SPLIT, train=[replace(q, solution="so 7") for q in SPLIT.train])

    assert len({name_of(config, split) for split in (SPLIT, elsewhere, worked)}) == 3


@pytest.mark.parametrize("setting", ["base", "adapter_init"])
def test_a_model_that_was_written_over_is_another_recipe_and_its_copy_is_not(setting: str) -> None:
    """What counts is what stands at the path."""
    given = {"base": "/m/base", "tuning": "lora", "adapter_init": "/m/adapter", "warmup": {}}
    config = RLRunConfig(**given)
    copied = RLRunConfig(**{**given, setting: "/m/copy"})
    place = str(given[setting])

    assert name_of(config, stands={place: "a"}) != name_of(config, stands={place: "b"})
    assert name_of(config, stands={place: "a"}) == name_of(copied, stands={"/m/copy": "a"})


def small_run(base: Path, **settings: Any) -> RLRunConfig:
    return RLRunConfig(
        base=str(base), tuning="full", max_new_tokens=8, heldout_temp=0.0, **settings
    )


def prepared(policy: Policy, config: RLRunConfig, split: Split) -> tuple[WarmupReport, list[str]]:
    """The report of both parts, and the series in the order in which they first came."""
    series: dict[str, None] = {}
    report = prepare(
        policy,
        split,
        config,
        gate=build_gate(config, policy, build_reward(config)),
        encode=build_prompts(config, policy),
        listen=lambda _step, name, _value: series.setdefault(name),
    )
    return report, list(series)


@pytest.mark.requirement("EX-06")
def test_format_pre_training_teaches_the_form_before_the_task(
    policy: Policy, base_folder: Path
) -> None:
    """It stops when completions are well-formed, right or wrong; the warm-up goes on from there."""
    config = small_run(
        base_folder,
        format={
            "pattern": r"^=\d\+$",
            "demonstration": "={answer}+",
            "pretrain": {"rows": 4, "lr": 3e-3, "target": 0.75, "eval_every": 5},
        },
        warmup={"target_heldout": 0.9, "eval_every": 5, "batch_size": 32},
        verifier="exact",
    )
    rows = [Question(f"q{i}", f"{i}=", str(i % 2)) for i in range(40)]
    exact = [replace(q, answer=f"={q.answer}+", solution=f"={q.answer}+") for q in rows]

    report, series = prepared(
        policy, config, carve(exact, heldout_frac=0.2, select_frac=0.5, seed=0)
    )

    assert series == ["format/loss", "format/well_formed", "warmup/loss", "warmup/heldout"]
    assert report.format_score is not None
    assert report.format_score >= 0.75
    assert report.score is not None
    assert report.score >= 0.9
    assert report.format_steps > 0
    assert "well-formed" in str(report)
    assert "held-out" in str(report)


@pytest.mark.requirement("EX-06")
def test_format_pre_training_alone_needs_no_warm_up(policy: Policy, base_folder: Path) -> None:
    """The report then has no accuracy to tell."""
    config = small_run(
        base_folder,
        format={"demonstration": "+{answer}", "pretrain": {"lr": 3e-3, "eval_every": 5}},
    )

    report, series = prepared(policy, config, SPLIT)

    assert series == ["format/loss", "format/well_formed"]
    assert (report.steps, report.score) == (0, None)
    assert str(report).startswith(f"{report.format_steps} steps, well-formed ")
