"""What ships beside the code and is named to people: the recipes that a first run is made from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from engine.contract.documents import read_text
from engine.contract.registry import kinds


class Recipe(NamedTuple):
    """One of them."""

    name: str
    kind: str
    about: str
    """Its first line, without a full stop."""
    path: Path


def demo_recipe() -> Path:
    """`examples/demo.yaml`."""
    return _folder() / "demo.yaml"


@cache
def recipes() -> tuple[Recipe, ...]:
    """All of them by name; one that is named like a kind is of that kind, any other an `rl_run`."""
    found = []
    for path in sorted(_folder().glob("*.yaml")):
        first = read_text(path).partition("\n")[0]
        kind = path.stem if path.stem in kinds() else "rl_run"
        found.append(Recipe(path.stem, kind, first.lstrip("# ").rstrip("."), path))
    return tuple(found)


def _folder() -> Path:
    """In the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "examples"
    return installed if installed.exists() else package.parent / "examples"
