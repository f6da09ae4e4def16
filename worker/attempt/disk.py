"""Whether a disk is full, before an attempt and after one."""

from __future__ import annotations

import shutil
from pathlib import Path

_FULL_BYTES = 64e6
_FULL_SHARE = 0.01


def full_disk(place: Path) -> str:
    """How little room is left at a place, in words; empty where it is more than a rest.

    A checkpoint that did not fit leaves some: less than 64 MB, on a small disk 1 %, is full.
    """
    try:
        known = shutil.disk_usage(place)
    except OSError:
        return ""  # whatever is wrong there is something else
    if known.free >= min(_FULL_BYTES, _FULL_SHARE * known.total):
        return ""
    return f"{known.free / 1e6:.1f} MB free at {place}"
