"""Pages from templates: one template serves the whole page and its live part.

A page is rendered whole; with `?part=NAME` only the block of that name is. Everything a job
brings along (names, output, errors) is escaped by Jinja. Knows no route and no data.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from app.text import wording
from app.web import assets
from app.web.navigation import MAIN, MORE, NAVIGATION
from app.web.shipped import demo_recipe
from app.web.strip import Strips

_HERE = Path(__file__).parents[1]
# In a checkout the templates stand beside the rooms; a wheel carries them inside this package.
TEMPLATE_FOLDER = next(
    folder for folder in (_HERE.parent / "templates", _HERE / "templates") if folder.is_dir()
)


@cache
def environment() -> jinja2.Environment:
    """Strict: a name the page does not know is an error, not an empty string."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {**wording.FILTERS, "codes": _codes, "asset": assets.asset}
    made.globals |= {
        "asset": assets.asset,
        "assets": assets,
        "navigation": NAVIGATION,
        "main_pages": MAIN,
        "more_pages": MORE,
        "time_zone": wording.told_in,
    }
    # An absolute path, for a terminal: a command that is copied works from any directory.
    made.globals["demo_recipe"] = shlex.quote(str(demo_recipe()))
    # A part is rendered without its page's imports, so what all pages share is global.
    made.globals["macros"] = made.get_template("macros.html").module
    return made


def _codes(text: str) -> Markup:
    """Help text with `names` in the type of code; everything in it is escaped first."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704


def page(
    request: Request,
    template: str,
    context: Mapping[str, Any],
    *,
    status: HTTPStatus = HTTPStatus.OK,
    headers: dict[str, str] | None = None,
) -> HTMLResponse:
    """The whole page, or the block that `?part=` names."""
    found = environment().get_template(template)
    wanted = request.query_params.get("part")
    part = wanted if wanted in found.blocks and request.method == "GET" else None
    known = {"now": time.time(), "path": request.url.path, "part": part, **context}
    known["unlocked"] = request.app.state.unlocked
    if part is None:
        # Every whole page bears it; before the application has started there is none.
        strips: Strips | None = getattr(request.app.state, "strips", None)
        strip = strips.now() if strips else None
        known["strip"] = strip
        # Of a page where only the strip is live; the others have read theirs before all else.
        known.setdefault("position", strip.position if strip else None)
    text = "".join(found.blocks[part](found.new_context(known))) if part else found.render(known)
    return HTMLResponse(text, status, headers=headers)


def door_page(
    title: str,
    lines: Sequence[str],
    *,
    status: HTTPStatus,
    again: bool = False,
    headers: dict[str, str] | None = None,
) -> HTMLResponse:
    """For whoever is not let in: in the frame's style, without a word from the database.

    `again`: the page asks for itself once more, at once.
    """
    context = {"title": title, "lines": lines, "again": again}
    return HTMLResponse(
        environment().get_template("door.html").render(context), status, headers=headers
    )
