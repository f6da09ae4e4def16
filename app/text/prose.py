"""An answer as one reads it: Markdown, code and maths; nothing that a model wrote becomes markup.

Markdown by markdown-it-py with HTML off. Links and pictures stay the text that was written: no
answer makes a page ask another host, or offers a click that leads there. Maths in `$ $`, `\\( \\)`,
`$$ $$`, `\\[ \\]`, LaTeX environments and a bare `\\boxed{}`; what cannot be read stays as it was
written. Control and direction characters become marks. Knows no page.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

from app.text.mathml import MOST_FORMULA, mathml
from app.text.visible import marked

MOST_READ = 40_000
"""Characters; a longer answer is shown as plain text, so that no page takes seconds."""
MOST_FORMULAS = 1000
"""Of one answer; those after them are shown as they were written."""
_MOST_BOXED = 200
"""Characters of a result in a box of its own."""

_CLOSED_BY = {"$$": "$$", r"\[": r"\]", r"\(": r"\)", "$": "$"}
_DISPLAY = ("$$", r"\[")
_ENVIRONMENT = re.compile(r"\\begin\{([a-z]{1,20}\*?)\}")
_BOXED = re.compile(r"\\boxed\{")
_TEXT_BLOCKS = frozenset({"paragraph_open", "heading_open", "list_item_open", "td_open", "th_open"})


def prose(text: str) -> Markup | None:
    """The answer as HTML; None where it is too long to be read as Markdown.

    >>> prose("**2** <b>")
    Markup('<p dir="auto"><strong>2</strong> &lt;b&gt;</p>\\n')
    """
    if len(text) > MOST_READ:
        return None
    return Markup(_reader().render(text, {"formulas": 0}))  # noqa: S704 - HTML is off


@cache
def _reader() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True})
    made.enable(["table", "strikethrough"])
    made.disable(["html_block", "html_inline", "autolink", "link", "image", "reference"])
    ends: RuleOptionsType = {"alt": ["paragraph", "blockquote", "list"]}
    made.block.ruler.before("fence", "math", _math_block, ends)
    made.inline.ruler.before("escape", "math", _math_inline)
    made.core.ruler.push("plain_blocks", _plain_blocks)
    for name, rule in _RULES.items():
        made.add_render_rule(name, rule)
    return made


# --- finding maths ---


class _Found(NamedTuple):
    """A formula in a text: its LaTeX, where it ends, and whether it has lines of its own."""

    latex: str
    end: int
    display: bool


def _formula_at(text: str, at: int) -> _Found | None:
    opened = next((mark for mark in _CLOSED_BY if text.startswith(mark, at)), None)
    if opened is None:
        return _environment_at(text, at) or _boxed_at(text, at)
    start = at + len(opened)
    close = _CLOSED_BY[opened]
    end = text.find(close, start, start + MOST_FORMULA)
    latex = text[start:end]
    if end < 0 or not latex.strip() or "\n\n" in latex:
        return None
    after = end + len(close)
    if opened == "$" and not _is_formula(latex, text[after : after + 1]):
        return None
    return _Found(latex, after, opened in _DISPLAY)


def _is_formula(latex: str, after: str) -> bool:
    """Between two single dollars: rather than two prices (Pandoc's rule)."""
    return not (latex[0].isspace() or latex[-1].isspace() or latex[-1] == "\\" or after.isdigit())


def _environment_at(text: str, at: int) -> _Found | None:
    opened = _ENVIRONMENT.match(text, at)
    if opened is None:
        return None
    close = rf"\end{{{opened[1]}}}"
    end = text.find(close, at, at + MOST_FORMULA)
    after = end + len(close)
    return None if end < 0 else _Found(text[at:after], after, display=True)


def _boxed_at(text: str, at: int) -> _Found | None:
    """`\\boxed{7}` outside of maths, up to its own brace."""
    opened = _BOXED.match(text, at)
    depth = 1
    for place in range(opened.end(), min(len(text), at + _MOST_BOXED)) if opened else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return _Found(text[at : place + 1], place + 1, display=False)
    return None


def _math_inline(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    found = _formula_at(state.src, state.pos)
    if found is None or found.end > state.posMax:
        return False
    if not silent:
        _push(state, found)
    state.pos = found.end
    return True


def _math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula that begins a line and has its last line to itself."""
    at = state.bMarks[first] + state.tShift[first]
    if state.is_code_block(first) or state.src[at : at + 1] not in {"$", "\\"}:
        return False
    found = _formula_at(state.src, at)
    if found is None or not found.display:
        return False
    line = next((n for n in range(first, last) if state.eMarks[n] >= found.end), None)
    if line is None or state.src[found.end : state.eMarks[line]].strip() not in {"", ".", ","}:
        return False
    if not silent:
        token = _push(state, found)
        token.block, token.map = True, [first, line + 1]
        state.line = line + 1
    return True


def _push(state: StateInline | StateBlock, found: _Found) -> Token:
    token = state.push("formula", "math", 0)
    token.content, token.meta = found.latex, {"display": found.display}
    return token


# --- drawing ---


def _plain_blocks(state: StateCore) -> None:
    """Each block in its own direction; a heading of an answer is none of the page's."""
    for token in state.tokens:
        if token.type in _TEXT_BLOCKS:
            token.attrSet("dir", "auto")
        if token.type == "heading_open":
            token.attrSet("class", f"heading h{token.tag[1:]}")
        if token.type in {"heading_open", "heading_close"}:
            token.tag = "p"


_Renderer: TypeAlias = RendererProtocol
_Tokens: TypeAlias = Sequence[Token]
_Env: TypeAlias = MutableMapping[str, Any]


def _text(_: _Renderer, tokens: _Tokens, at: int, _options: OptionsDict, _env: _Env) -> str:
    return marked(tokens[at].content)


def _formula(_: _Renderer, tokens: _Tokens, at: int, _options: OptionsDict, env: _Env) -> str:
    token = tokens[at]
    env["formulas"] += 1
    within = env["formulas"] <= MOST_FORMULAS
    found = mathml(token.content, display=token.meta["display"]) if within else None
    if found is None:
        return Markup('<code class="latex">{}</code>').format(marked(token.content))
    return (
        Markup('<div class="formula" tabindex="0">{}</div>').format(found) if token.block else found
    )


def _code(_: _Renderer, tokens: _Tokens, at: int, _options: OptionsDict, _env: _Env) -> str:
    return Markup("<code>{}</code>").format(marked(tokens[at].content))


def _code_block(_: _Renderer, tokens: _Tokens, at: int, _options: OptionsDict, _env: _Env) -> str:
    """It scrolls by itself, so the keyboard must reach it."""
    return Markup('<pre tabindex="0"><code>{}</code></pre>\n').format(marked(tokens[at].content))


def _table(_: _Renderer, tokens: _Tokens, at: int, _options: OptionsDict, _env: _Env) -> str:
    opened = tokens[at].nesting == 1
    return '<div class="scroll" tabindex="0"><table>\n' if opened else "</table></div>\n"


_RULES = {
    "text": _text,
    "formula": _formula,
    "code_inline": _code,
    "fence": _code_block,
    "code_block": _code_block,
    "table_open": _table,
    "table_close": _table,
}
