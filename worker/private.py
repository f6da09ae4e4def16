"""The data directory is its user's alone: prompts, answers, weights and settings lie in it.

Directories have the mode 0700 and files 0600, whatever the umask. Knows no setting.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.contract.errors import NightlaneError

OTHERS = 0o077
"""What nobody but the owner may do, as a mode and as a umask."""


class NotPrivateError(NightlaneError):
    """Others of this machine may look into what is this user's alone."""

    exit_code = 4

    def __init__(self, path: Path, mode: str) -> None:
        self.path, self.mode = path, mode
        super().__init__(
            f"{path} is open to other users of this machine ({mode}); run: chmod 700 {path}"
        )


def keep_private() -> None:
    """What this process and its children write from now on is this user's alone."""
    os.umask(OTHERS)


def make_private(folder: Path) -> None:
    """A directory that only this user enters; one that stands already is tightened if it is theirs.

    Raises OSError when it cannot be made.
    """
    folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    tighten(folder)


def tighten(path: Path) -> None:
    """Take from others what they may do, where something of this user stands there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def open_to_others(path: Path) -> str | None:
    """The mode of what others may look into, as `chmod` writes it; None where they may not."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"{mode:04o}" if mode & OTHERS else None


def require_private(path: Path) -> None:
    """Raises NotPrivateError where others may look into it, OSError where there is nothing."""
    mode = open_to_others(path)
    if mode is not None:
        raise NotPrivateError(path, mode)
