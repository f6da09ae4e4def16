"""Thumbnails: small copies of the pictures behind the rollouts that people look at.

They lie beside the rollouts, so that a run directory shows its boxes without the data set. Boxes
are shares of the picture, so its size does not matter. Knows no rollout.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from PIL import Image

from engine.stage2.rollout.pictures import UNREADABLE, in_rgb

SIDE = 512
"""Longest side in pixels."""
MOST = 2000
"""Pictures of one run; a run that looks at more shows the rest as boxes alone."""
LAVISH = 1000
"""As long as so few lie there, every picture is worth its room; then only the asked for."""


class Thumbnails:
    """The folder of one run; a picture is copied once."""

    def __init__(self, folder: Path, most: int = MOST, lavish: int = LAVISH) -> None:
        self._folder = folder
        self._most = most
        self._sparing = most - lavish
        self._known: dict[Path, dict[str, Any] | None] = {}
        self._left: int | None = None

    def of(self, path: Path, *, sparingly: bool = False) -> dict[str, Any] | None:
        """Name in the folder, width and height; None when there is no room or no picture.

        `sparingly`: only what is there, or while few are.
        """
        if path not in self._known:
            if sparingly and self._room() <= self._sparing:
                return None
            self._known[path] = self._copied(path)
        return self._known[path]

    def _copied(self, path: Path) -> dict[str, Any] | None:
        """A picture that cannot be copied costs its boxes their background, never the run."""
        target = self._folder / f"{hashlib.sha256(str(path).encode()).hexdigest()[:20]}.jpg"
        try:
            with Image.open(path) as image:
                size = image.size
                if not target.is_file():
                    if self._room() < 1:
                        return None
                    self._write(in_rgb(image), target)
        except UNREADABLE:
            return None
        return {"name": target.name, "width": size[0], "height": size[1]}

    def _room(self) -> int:
        if self._left is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._left = self._most - sum(1 for _ in self._folder.glob("*.jpg"))
        return self._left

    def _write(self, image: Image.Image, target: Path) -> None:
        image.thumbnail((SIDE, SIDE))
        temporary = target.with_suffix(".tmp")
        image.save(temporary, "JPEG", quality=92, subsampling=0)
        temporary.replace(target)
        self._left = self._room() - 1
