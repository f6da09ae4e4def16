"""With what an attempt was run: versions, the checkout's commit, the hash of the pinned versions.

Kept in `attempts/NNN/provenance.json`. It is evidence, not input: what cannot be found out is left
out, and the attempt runs all the same. Knows no job.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.contract.documents import read_json_object
from engine.contract.run_dir import AttemptDir, write_json

FILE = "provenance.json"
PACKAGES = (
    "nightlane", "torch", "transformers", "peft", "accelerate", "tokenizers", "safetensors",
    "numpy", "math-verify", "vllm", "ms-swift",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parent.parent.parent
_GIT_S = 5.0


def note_provenance(attempt: AttemptDir) -> None:
    """Write what is known; a disk without room costs the note, not the run."""
    with contextlib.suppress(OSError):
        write_json(attempt.root / FILE, {**_code(), "packages": _packages()})


def read_provenance(attempt: AttemptDir) -> Mapping[str, Any]:
    """What was noted; empty for an attempt that noted nothing."""
    try:
        return read_json_object(attempt.root / FILE)
    except OSError:
        return {}


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def _code() -> Mapping[str, Any]:
    """Of this process, whose code does not change while it runs."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    pins = _ROOT / "constraints.txt"
    with contextlib.suppress(OSError):
        found["constraints_sha256"] = hashlib.sha256(pins.read_bytes()).hexdigest()
    commit = _git("rev-parse", "HEAD") if (_ROOT / ".git").exists() else None
    if commit:
        found["commit"] = commit
        found["changed_files"] = len((_git("status", "--porcelain") or "").splitlines())
    return found


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
