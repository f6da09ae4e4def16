"""Every `python -m MODULE` that documents, pages and errors name can be started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"python -m ((?:app|worker|engine|tools|bench)[a-z0-9_.]*)(?: ([a-z]+))?")
TEXTS = (
    *(path for room in ("app", "worker", "engine") for path in (ROOT / room).rglob("*.py")),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "templates").glob("*.html"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "Makefile",
)


def named() -> dict[str, set[str]]:
    """Module → the words after it."""
    found: dict[str, set[str]] = {}
    for path in TEXTS:
        for module, word in NAMED.findall(path.read_text("utf-8")):
            found.setdefault(module.rstrip("."), set()).add(word)
    return found


@pytest.mark.parametrize("module", sorted(named()))
def test_a_module_that_is_named_runs_something(module: str) -> None:
    """One without a main would end with 0, and have done nothing."""
    place = ROOT / module.replace(".", "/")
    if place.is_dir():  # whose `__main__.py` is run and never imported
        assert re.search(r"\bmain\(", (place / "__main__.py").read_text("utf-8"))
    else:
        assert '__name__ == "__main__"' in place.with_suffix(".py").read_text("utf-8")


def test_the_engines_commands_are_those_that_are_named() -> None:
    """`python -m engine export`, say."""
    known = re.findall(r'add_parser\(\s*"([a-z]+)"', (ROOT / "engine/__main__.py").read_text())

    assert named()["engine"] - {""} <= set(known)
    assert "export" in known
