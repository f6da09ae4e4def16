"""Static files: their addresses, and the lists that every page links."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

STATIC_FOLDER = Path(__file__).parents[1] / "static"

SHEETS = ("vendor/uPlot.min.css", "cockpit.css")
"""Of every page."""
SCRIPTS = (
    "vendor/htmx.min.js",
    "stream.js",
    "live.js",
    "keys.js",
    "palette.js",
    "vendor/uPlot.iife.min.js",
    "charts.js",
)
"""Of every page: what keeps it live, its keys, its palette, its charts."""


@cache
def asset(name: str) -> str:
    """The address of a static file, with its content's hash so that no browser shows an old one."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"
