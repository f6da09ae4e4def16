"""The warmed-up base of a low-rank run: `base/` in its run directory.

A warm-up trains the whole model and a low-rank checkpoint holds the adapter alone, so the model
that the adapter belongs to is kept once, as a plain Hugging Face folder that PEFT and everybody
else can load. Knows no warm-up and no adapter.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from engine.contract.run_dir import COMPLETE, RunDir, fsync_directory
from engine.models.qwen3_vl import VisionModel
from engine.run import checkpoint
from engine.run.checkpoint import Warn, weights_of


def keep(run: RunDir, vlm: VisionModel) -> Mapping[str, str]:
    """Write the model as it is now, durable and whole under its name; its `weights_of`."""
    temporary = run.base.with_name(f".{run.base.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    vlm.save(temporary)
    checkpoint.seal(temporary, {})
    if run.base.exists():
        (run.base / COMPLETE).unlink(missing_ok=True)  # half of it is gone: it is not whole
        shutil.rmtree(run.base)
    temporary.rename(run.base)
    fsync_directory(run.root)
    return weights_of(run.base)


def is_whole(run: RunDir, weights: Mapping[str, str], warn: Warn) -> bool:
    """Whether the folder stands unharmed and holds these weights."""
    if not run.base.is_dir() or checkpoint.verified(run.base, warn) is None:
        return False
    return weights_of(run.base) == weights


def base_beside(checkpoint_folder: Path) -> Path | None:
    """The base in the run directory that a checkpoint lies in, wherever that was moved to."""
    folder = checkpoint_folder.resolve().parent
    run = RunDir(folder.parent)
    stands = folder == run.checkpoints and (run.base / COMPLETE).is_file()
    return run.base if stands else None
