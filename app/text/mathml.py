"""LaTeX as a model wrote it, as MathML that is safe to put into a page.

latex2mathml reads the LaTeX. Its result is rebuilt from known elements and attributes alone, since
`\\href`, `\\style` and `\\class` would pass on what a model wrote. Knows no page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal
from xml.etree.ElementTree import Element

from latex2mathml import exceptions
from latex2mathml.converter import Converter
from markupsafe import Markup, escape

MOST_FORMULA = 2000
"""Characters; a longer one is shown as it was written. 2,000 take less than 0.1 s."""

# fmt: off
_ELEMENTS = frozenset({
    "math", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded", "mphantom",
    "mprescripts", "mroot", "mrow", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup",
    "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "none",
})
# fmt: on
_CHILDREN = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "munder", "mover"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
_WORDS = re.compile(r"[a-z-]{1,24}")
_LENGTH = re.compile(r"-0?\.\d{1,4}em|\d{0,2}(\.\d{1,4})?(em|ex|px|pt)?")
"""No space that could lay a formula over what stands beside it."""
_ATTRIBUTES = {
    **dict.fromkeys(
        ("accent", "displaystyle", "fence", "form", "mathvariant", "movablelimits", "separator"),
        _WORDS,
    ),
    **dict.fromkeys(("largeop", "stretchy", "display"), _WORDS),
    **dict.fromkeys(
        ("depth", "height", "linethickness", "lspace", "maxsize", "minsize", "rspace", "width"),
        _LENGTH,
    ),
    "scriptlevel": re.compile(r"[+-]?\d"),
}
_SIDES = frozenset({"left", "right"})
_DEFINES = re.compile(
    r"\\(?:re|provide)?new(?:command|environment)|\\[egx]?def\b|\\Declare|\\let\b"
)
"""A macro may grow without bound."""
_UNREADABLE: tuple[type[Exception], ...] = (
    *(one for one in vars(exceptions).values() if isinstance(one, type)),
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # nested too deep; an iterator that ended
    StopIteration,
    TypeError,
    ValueError,
)


def mathml(latex: str, *, display: bool = False) -> Markup | None:
    """A `<math>` element; None for what cannot be read, is too long or defines macros.

    >>> mathml("x<1")
    Markup('<math><mrow><mi>x</mi><mo>&lt;</mo><mn>1</mn></mrow></math>')
    """
    if len(latex) > MOST_FORMULA or _DEFINES.search(latex):
        return None
    form: Literal["block", "inline"] = "block" if display else "inline"
    try:
        found = Converter(display=form).convert_to_element(latex)
        return Markup("").join(_rebuilt(found))
    except _UNREADABLE:
        return None


def _rebuilt(element: Element) -> Iterator[Markup]:
    if len(element) != _CHILDREN.get(element.tag, len(element)):
        raise ValueError(element.tag)  # a browser would show its parts in a row
    tag = element.tag if element.tag in _ELEMENTS else "mrow"
    yield Markup("<{}{}>").format(tag, Markup("").join(_attributes(element)))
    # The library writes characters as entities.
    yield escape(html.unescape(element.text or ""))
    for child in element:
        yield from _rebuilt(child)
    yield Markup("</{}>").format(tag)


def _attributes(element: Element) -> Iterator[Markup]:
    if element.tag == "menclose":
        yield Markup(' class="boxed"')  # Chromium draws no menclose
    if element.attrib.get("columnalign") in _SIDES:  # nor does it know this one
        yield Markup(' class="{}"').format(element.attrib["columnalign"])
    for name, value in element.attrib.items():
        known = _ATTRIBUTES.get(name)
        if known and known.fullmatch(value) and (name, value) != ("display", "inline"):
            yield Markup(' {}="{}"').format(name, value)
