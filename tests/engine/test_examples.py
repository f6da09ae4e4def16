"""The recipes in examples/ are anybody's recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.kinds import parse_yaml, validate

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_config_that_can_run_here(path: Path) -> None:
    """It passes the one validation path, with nothing to download."""
    config = validate("rl_run", parse_yaml(path.read_text("utf-8")))

    assert config.model_dump()["base"].startswith("embedded:")


def test_there_is_a_demo() -> None:
    """What `make demo` runs."""
    assert "demo.yaml" in {path.name for path in EXAMPLES}
