"""What the exit status of `cockpit` means."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """The command line ends with one of these."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    INTERRUPTED = 130
