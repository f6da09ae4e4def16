"""Three rooms, one direction: what each may import, proven in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "peft", "vllm")


def _imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("room", ["app", "worker", "engine.contract"])
def test_app_worker_and_contract_start_without_torch(room: str) -> None:
    """Every module of the room, imported in one interpreter, brings no training library."""
    statement = (
        "import importlib, pkgutil\n"
        f"package = importlib.import_module({room!r})\n"
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)"
    )

    assert not _imported_by(statement) & set(HEAVY)


def test_the_engines_loop_needs_neither_torch_nor_the_web_nor_a_database() -> None:
    """The orchestration of an RL run is plain Python."""
    forbidden = {*HEAVY, "fastapi", "starlette", "uvicorn", "sqlalchemy", "sqlmodel", "sqlite3"}

    assert not _imported_by("import engine.rl.loop") & forbidden
