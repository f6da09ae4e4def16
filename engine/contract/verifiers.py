"""The names of the verifiers: one file a verifier in `engine/reward/verifiers/`.

Config needs the names without importing what a verifier imports.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import engine


@cache
def verifier_names() -> Sequence[str]:
    """Alphabetical."""
    folder = Path(engine.__path__[0]) / "reward" / "verifiers"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))
