"""verl: `prompt` as a conversation, the gold in `reward_model.ground_truth`."""

from __future__ import annotations

from engine.contract.sources.layouts.reading import Part, Reading, final, first_of, has
from engine.contract.sources.values import Columns

NAME = "verl"
WANTS = "prompt, reward_model.ground_truth"


def recognise(row: Columns) -> Reading | None:
    """Its `extra_info` may hold a worked answer too."""
    if not has(row, "prompt", "reward_model.ground_truth"):
        return None
    worked = first_of(row, ("extra_info.solution", "extra_info.answer"))
    return Reading(
        NAME,
        "verl rows",
        Part("prompt"),
        Part("reward_model.ground_truth", final),
        Part(worked) if worked else None,
    )
