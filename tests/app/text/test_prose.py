"""An answer as one reads it: Markdown and maths are drawn, and nothing a model wrote is markup."""

from __future__ import annotations

import re
import time

import pytest

from app.text.mathml import MOST_FORMULA, mathml
from app.text.prose import MOST_READ, prose
from tests.app.rollouts import PROOF

# fmt: off
OWN = frozenset({
    "p", "strong", "em", "s", "ul", "ol", "li", "pre", "code", "blockquote", "br", "hr", "div",
    "table", "thead", "tbody", "tr", "th", "td", "span", "math", "mfrac", "mi", "mn", "mo",
    "mrow", "msqrt", "msub", "msup", "mtable", "mtd", "mtext", "mtr", "mspace", "mstyle",
    "munder", "mover",
})
# fmt: on


def drawn(text: str) -> str:
    found = prose(text)
    assert found is not None
    return str(found)


def tags(markup: str) -> set[str]:
    return set(re.findall(r"<([a-zA-Z][\w-]*)", markup))


def attributes(markup: str) -> set[str]:
    return {
        name for tag in re.findall(r"<[^>]*>", markup) for name in re.findall(r"([\w-]+)=", tag)
    }


@pytest.mark.requirement("UI-14")
def test_a_long_answer_is_drawn_with_headings_code_tables_and_formulas() -> None:
    """All that the answers of today's models are made of."""
    found = drawn(PROOF)

    assert found.count('<p dir="auto" class="heading h3">') == 3
    assert "<mfrac>" in found
    assert "<strong>easy to bound</strong>" in found
    assert '<pre tabindex="0"><code>def f(x):' in found
    assert '<th dir="auto">x</th>' in found
    assert '<mrow class="boxed">' in found
    assert "$" not in found


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize(
    "written",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[click](javascript:alert(1))",
        "[click](https://evil.example/)",
        "![x](https://evil.example/x.png)",
        "<https://evil.example/>",
        "[a]: https://evil.example/\n\n[a]",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "```html\n<script>alert(1)</script>\n```",
        '```"><script>alert(1)</script>\n```',
        r"$\href{javascript:alert(1)}{x}$",
        r"$\style{background:url(https://evil.example/x)}{x}\class{top}{x}$",
        r"$\text{<script>alert(1)</script>}$",
        r"$\text{&lt;script&gt;alert(1)&lt;/script&gt;}$",
        r"$\unicode{x3c}script\unicode{x3e}$",
        "| <b>a</b> |\n|---|\n| <iframe src=//evil.example> |",
        "<details open ontoggle=alert(1)>",
    ],
)
def test_nothing_that_a_model_wrote_becomes_markup(written: str) -> None:
    """No element, no attribute and no address but the reader's own: nothing runs, none is asked."""
    found = drawn(written)

    assert tags(found) <= OWN
    assert attributes(found) <= {"dir", "class", "tabindex", "display", "stretchy", "title"} | {
        "mathvariant",
        "width",
        "fence",
        "form",
        "separator",
        "displaystyle",
        "scriptlevel",
    }
    assert 'class="top"' not in found


@pytest.mark.requirement("UI-14")
def test_a_link_stays_the_text_that_was_written() -> None:
    """Its address can be read, and not clicked."""
    assert "[click](https://evil.example/)" in drawn("[click](https://evil.example/)")


@pytest.mark.requirement("UI-14")
def test_direction_and_control_characters_are_marks() -> None:
    """They could turn an answer around, or hide a part of it."""
    found = drawn("safe \u202eevil\u202c `a\x1b[31m` \u200bend")

    for code in ("202E", "202C", "001B", "200B"):
        assert f'title="character U+{code}"' in found
    assert not re.search("[\x1b\u202e\u202c\u200b]", found)


@pytest.mark.requirement("UI-14")
def test_each_block_has_the_direction_of_its_own_words() -> None:
    """An Arabic sentence beside an English one."""
    assert drawn("abc\n\nשלום").count('<p dir="auto">') == 2


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize(
    "latex",
    [
        *(r"\frac{1}", "x_", "{", r"\left(", r"\begin{align}a", "^" * 300, "{" * 1500),
        *(r"\def\a{\a\a}\a", r"\newcommand{\b}{\b\b}\b", "x" * (MOST_FORMULA + 1)),
    ],
)
def test_a_formula_that_cannot_be_read_stays_as_it_was_written(latex: str) -> None:
    """Torn, nested too deep, a macro without end, too long: the words are there."""
    assert mathml(latex) is None
    assert latex in drawn(f"before `x` \\({latex}\\) after").replace("&amp;", "&")


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize("written", ["It costs $5 and she pays $10.", "$5/$10", "a $ b $ c"])
def test_prices_are_no_formula(written: str) -> None:
    """Dollars with a digit after the second, or a blank inside."""
    assert written in drawn(written)


@pytest.mark.requirement("UI-14")
def test_a_formula_over_several_lines_is_no_list() -> None:
    """A line of it that begins with a minus would be one in Markdown."""
    found = drawn("so\n\\[\na\n- b\n+ c\n\\]\nthen\n\\begin{align*}\nx &= 1\n- y\n\\end{align*}\n")

    assert "<li" not in found
    assert found.count('<math display="block">') == 2


@pytest.mark.requirement("UI-14")
@pytest.mark.parametrize(
    "unit",
    ["[", "**a*", "$ ", r"\(", r"\boxed{", r"\[" + "\n", "`", "\u202e", "|a", "> ", "- ", "x_$"],
)
def test_no_answer_takes_seconds_to_draw(unit: str) -> None:
    """What a run that collapsed writes: one thing again and again, up to the longest one read."""
    began = time.perf_counter()

    drawn((unit * MOST_READ)[:MOST_READ])

    assert time.perf_counter() - began < 5


def test_a_longer_answer_is_not_read_as_markdown() -> None:
    """It is shown as it was written."""
    assert prose("a" * (MOST_READ + 1)) is None
