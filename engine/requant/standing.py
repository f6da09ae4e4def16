"""What of a `requant` stands already, and whether the disk can take the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.contract.envelope import gigabytes
from engine.contract.errors import RLLoopError
from engine.contract.kinds.requant import RequantConfig, requant_checkpoints
from engine.run.checkpoint import Checkpoint, CheckpointStore


def last_whole(store: CheckpointStore) -> Checkpoint | None:
    """The last step with no harmed one before it: a format is compared with the step of the 16-bit
    model, which all of them are made of.
    """
    newest = store.newest()
    steps = range(0 if newest is None else newest.step)
    harmed = next((step for step in steps if store.verified(step) is None), None)
    if harmed is None:
        return newest
    return store.verified(harmed - 1) if harmed else None


def require_room(place: Path, config: RequantConfig, done: int) -> None:
    """Raises RLLoopError where the models that are not written yet have no room; where nobody knows
    the model's size, nothing. `done`: the last step that stands, -1 without any.
    """
    forecast = requant_checkpoints(config)
    written = 0 if done < 0 else max(done, 1)  # step 1 writes none
    missing = 1 + len(config.formats) - written
    if forecast is None or missing <= 0:
        return
    needed, left = forecast.each * missing, gigabytes(shutil.disk_usage(place).free)
    if needed > left:
        problem = f"may need {needed:.3g} GB on the disk of {place}, which has {left:.3g} GB left"
        remedy = "make room, or name fewer formats"
        raise RLLoopError.of("formats", ", ".join(config.formats), problem, remedy)
