"""Paths as a person writes them in a config. What cannot be a path is a ValueError in words."""

from __future__ import annotations

from pathlib import Path


def at_home(path: str | Path) -> Path:
    """With `~` and `~user` filled in. Raises ValueError for the home of nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        who = Path(path).parts[0]
        raise ValueError(f"begins with {who}, and this machine knows no such home") from None


def located(path: str) -> Path:
    """Absolute, links followed, whether something stands there or not.

    A drain may run in another directory than the one that a config was sent from. Raises ValueError
    for what nothing can be at, and for what this user may not look at.
    """
    try:
        found = at_home(path).resolve()
        found.exists()
    except OSError as error:
        raise ValueError(f"cannot be looked at: {error.strerror}") from None
    except RuntimeError:
        raise ValueError("is a link that leads back to itself") from None
    return found


def broken_link(path: Path) -> str | None:
    """`X links to Y, which is not there`: the first link on the way to a path that leads nowhere,
    as one to a disk that is not mounted. None where there is none, or nobody may look.
    """
    try:
        for part in (*reversed(path.parents), path):
            if part.is_symlink() and not part.exists():
                return f"{part} links to {part.readlink()}, which is not there"
    except OSError:
        return None
    return None
