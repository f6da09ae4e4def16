"""Static files: their addresses, and those that stand inside a page.

A new tab of a browser waits for each sheet before it draws anything (docs/experiments.md). The
pages' policy against foreign styles and scripts names the hash of those inside, so that no other
text passes.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from markupsafe import Markup

STATIC_FOLDER = Path(__file__).parents[1] / "static"

TOKENS = tuple(f"vendor/open-props.{name}.min.css" for name in ("colors", "sizes", "borders"))
SHEETS = (*TOKENS, "vendor/uPlot.min.css", "cockpit.css")
"""Of every page."""
SCRIPTS = ("vendor/htmx.min.js", "stream.js", "live.js", "keys.js")
"""Of every page: what keeps it live, and its keys."""
CHARTS = ("vendor/uPlot.iife.min.js", "charts.js")
"""Of every page, and the last of it."""
RUN_PAGE_STYLE = (*SHEETS, "run.css")
"""Inside the page that is opened to see how a run stands."""
RUN_PAGE_SCRIPT = ("late.js",)
"""The same: asks for all other scripts when the page has been shown."""


@cache
def asset(name: str) -> str:
    """The address of a static file, with its content's hash so that no browser shows an old one."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


@cache
def inside(names: tuple[str, ...]) -> Markup:
    """What a page says that bears these files inside it.

    They are our own, and none of them holds a `</`: nothing in them can end the element.
    """
    return Markup("\n".join((STATIC_FOLDER / name).read_text("utf-8") for name in names))  # noqa: S704


@cache
def allowed(names: tuple[str, ...]) -> str:
    """What a Content-Security-Policy says of them there."""
    digest = hashlib.sha256(inside(names).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
