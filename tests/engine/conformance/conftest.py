"""What the kinds need to run: each brings a recipe of a few seconds."""

from __future__ import annotations

from tests.engine.stage2.conftest import ab_recipe, shapes_file, vl_folder

__all__ = ["ab_recipe", "shapes_file", "vl_folder"]
