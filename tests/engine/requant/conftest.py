"""Runs whose checkpoints are quantized: one of all weights, one of an adapter; trained once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.run_dir import RunDir
from tests.engine.conftest import add_attempt


def _trained(root: Path, recipe: dict[str, Any]) -> RunDir:
    run = add_attempt(root, recipe, name="7")
    assert main(["run", str(run.root)]) == 0
    return run


@pytest.fixture(scope="session")
def full_run(base_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of all weights that gained."""
    return _trained(tmp_path_factory.mktemp("full"), base_recipe)


@pytest.fixture(scope="session")
def lora_run(base_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of an adapter that gained."""
    recipe = base_recipe | {"tuning": "lora", "lr": 2e-2}
    return _trained(tmp_path_factory.mktemp("lora"), recipe)
