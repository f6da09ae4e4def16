"""The recipes in examples/ are anybody's recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.documents import parse_yaml
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.registry import cautions, get_kind, kinds, validate

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
RL_RUNS = [path for path in EXAMPLES if not path.stem.startswith(("stage2", "rollout"))]


def recipe(name: str) -> RLRunConfig:
    [path] = [path for path in RL_RUNS if path.stem == name]
    config = validate("rl_run", parse_yaml(path.read_text("utf-8")))
    assert isinstance(config, RLRunConfig)
    return config


@pytest.mark.requirement("EX-21")
@pytest.mark.parametrize("path", RL_RUNS, ids=lambda path: path.name)
def test_every_example_is_a_config_that_can_be_queued_here(path: Path) -> None:
    """It passes the one validation path without a caution, but that its model is not here yet, and
    says what it is for.
    """
    text = path.read_text("utf-8")
    raw = parse_yaml(text)

    validate("rl_run", raw)

    said = [one for one in cautions("rl_run", raw) if "with its download" not in one.problem]
    assert said == []
    assert text.startswith("# ")
    assert path.stem == "demo" or "# What it is for: " in text


def test_the_demo_needs_nothing_from_elsewhere() -> None:
    """What `make demo` runs: no download."""
    assert recipe("demo").base.startswith("embedded:")


@pytest.mark.requirement("EX-21")
def test_the_recipes_carry_what_the_experiments_found() -> None:
    """The instruct model's settings, and those of the first stable success."""
    instruct, stable = recipe("instruct"), recipe("stable-start")

    assert (instruct.lr, instruct.kl_coef, instruct.prompting.skip_chat_template) == (
        1e-5,
        0.04,
        False,
    )
    assert (stable.lr, stable.kl_coef, stable.group_k, stable.tasks_per_step) == (
        1e-6,
        0.001,
        8,
        64,
    )
    assert (stable.optim.adam_eps, stable.optim.warmup_steps) == (1e-4, 50)
    assert stable.prompting.skip_chat_template


@pytest.mark.requirement("EX-21")
def test_what_collapsed_is_cautioned_against() -> None:
    """lr 5e-5 with kl_coef 0.001 may run, but not in silence."""
    raw = {"base": "embedded:qwen3-tiny", "tuning": "full", "lr": 5e-5, "kl_coef": 0.001}

    [caution] = cautions("rl_run", raw)

    assert caution.field == "lr"
    assert "is what collapsed" in caution.line()
    assert "lr 1e-5 with kl_coef 0.04" in caution.line()
    assert cautions("rl_run", raw | {"lr": 1e-6}) == []


def test_every_example_belongs_to_a_kind() -> None:
    """Its file's name begins with the kind's, or it is an `rl_run`."""
    for path in EXAMPLES:
        kind = path.stem if path not in RL_RUNS else "rl_run"
        assert get_kind(kind).name in kinds()
