"""What the kinds need to run: each brings a recipe of a few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract import kinds as folder
from engine.contract import registry
from tests.engine.stage2.conftest import ab_recipe, matching_recipe, shapes_file, vl_folder

__all__ = ["ab_recipe", "matching_recipe", "shapes_file", "vl_folder"]


@pytest.fixture(autouse=True)
def smallest_kind() -> Iterator[None]:
    """`kinds/counting.py` is registered by its place, as every kind is."""
    place = str(Path(__file__).parent / "kinds")
    folder.__path__.append(place)
    registry.kinds.cache_clear()
    yield
    folder.__path__.remove(place)
    registry.kinds.cache_clear()


@pytest.fixture
def counting_recipe(tmp_path: Path) -> dict[str, Any]:
    """A model to guard and some rows to count."""
    model, rows = tmp_path / "own" / "model", tmp_path / "own" / "rows.jsonl"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    rows.write_text("".join(f'{{"id": "{"q" * size}"}}\n' for size in range(1, 6)), "utf-8")
    return {"model": str(model), "rows": str(rows)}
