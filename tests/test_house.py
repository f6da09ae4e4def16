"""The house itself: no two packages import each other, and what is too long gets no longer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("engine", "worker", "app")
LONG_LINE = 160
MOST_LONG_LINES = 107
"""Of templates; the number may only fall."""


def package(module: str) -> str:
    """Room and first folder below it: `worker.queue.claim` is of `worker.queue`."""
    return ".".join(module.split(".")[:2])


def modules() -> dict[str, Path]:
    found = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in found
    }


def imported(path: Path) -> Iterator[str]:
    """Every name that a file imports: inside functions and for the type checker alone too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_two_packages_import_each_other() -> None:
    """What both need stands below both, or comes in as a callable."""
    known = modules()
    edges = {
        (package(module), package(name))
        for module, path in known.items()
        for name in imported(path)
        if name in known and name not in ROOMS and package(name) != package(module)
    }

    assert sorted((a, b) for a, b in edges if a < b and (b, a) in edges) == []


def test_no_more_template_lines_are_too_long() -> None:
    """A branch in a line of 160 characters belongs into the view's dataclass."""
    long = [
        f"{path.name}:{number}"
        for path in (ROOT / "templates").rglob("*.html")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LONG_LINE
    ]

    assert len(long) <= MOST_LONG_LINES


@pytest.mark.parametrize(
    ("root", "lines"),
    [
        ("engine/rl/rl_run.py", 150),
        ("engine/stage2/run.py", 150),
        ("engine/eval_rerun/eval_rerun.py", 150),
        ("engine/requant/requant.py", 150),
        ("tests/engine/conformance/kinds/counting.py", 80),
    ],
)
def test_the_root_of_a_kind_reads_like_a_page(root: str, lines: int) -> None:
    """What every kind needs is in `engine/run`; what one needs is in modules beside its root."""
    text = (ROOT / root).read_text("utf-8")
    methods = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for node in node.body
        if isinstance(node, ast.FunctionDef)
    ]

    assert len(text.splitlines()) <= lines
    assert len(methods) <= 12
