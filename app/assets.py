"""Static files: their addresses, and the style sheets that stand inside a page.

A new tab of a browser waits for each sheet before it draws anything (docs/experiments.md). The
pages' policy against foreign styles names the hash of those inside, so that no other text passes.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from markupsafe import Markup

STATIC_FOLDER = Path(__file__).parent / "static"

RUN_PAGE = (
    "vendor/open-props.colors.min.css",
    "vendor/open-props.sizes.min.css",
    "vendor/open-props.fonts.min.css",
    "vendor/open-props.borders.min.css",
    "vendor/uPlot.min.css",
    "cockpit.css",
    "run.css",
)
"""Of the page that is opened to see how a run stands."""


@cache
def asset(name: str) -> str:
    """The address of a static file, with its content's hash so that no browser shows an old one."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


@cache
def inlined() -> Markup:
    """The run page's sheets as one element."""
    return Markup(f"<style>{_text()}</style>")  # noqa: S704 - our own files


@cache
def allowed() -> str:
    """What `style-src` of a Content-Security-Policy says of them."""
    digest = hashlib.sha256(_text().encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _text() -> str:
    return "".join((STATIC_FOLDER / name).read_text("utf-8") for name in RUN_PAGE)
