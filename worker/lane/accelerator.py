"""Whether the accelerator that a lane is named after is in this machine.

Only `gpu0`, `gpu1`, … claim one; any other name is a lane on the processor. Starts nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine.contract.errors import NightlaneError

SIGNS = tuple(
    Path(path)
    for path in (
        "/proc/driver/nvidia/gpus",
        "/dev/nvidiactl",
        "/dev/nvhost-gpu",
        "/dev/dxg",
        "/dev/kfd",
        "/dev/dri/renderD128",
    )
)
"""What a GPU's driver leaves: NVIDIA, in a container, on Jetson, in Windows' Linux; AMD; others."""


class NoLaneError(NightlaneError):
    """The lane names an accelerator that is not here."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        super().__init__(no_lane_words(lane))


def no_lane_words(lane: str) -> str:
    """What is wrong with the lane, with the way out."""
    return (
        f'lane "{lane}" names an accelerator that this machine does not have, or whose driver is '
        "not loaded; load it, or set NIGHTLANE_LANE=cpu to run on the processor"
    )


def accelerator_is_here(lane: str) -> bool:
    """False only when the name claims a GPU and no driver of one is to be seen."""
    return not re.fullmatch(r"gpu\d*", lane) or any(sign.exists() for sign in SIGNS)


def require_accelerator(lane: str) -> None:
    """Raises NoLaneError."""
    if not accelerator_is_here(lane):
        raise NoLaneError(lane)
