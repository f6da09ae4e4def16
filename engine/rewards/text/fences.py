"""The fenced blocks of a completion, by CommonMark's rule for fenced code blocks. Runs nothing.

Where a text is no Markdown to the letter it is read as a person would: a block may stand unclosed
at the end, be less indented than its item of a list, or begin behind words on the same line. Every
function is linear in the text. Knows no language.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_OPENING = re.compile(r"[ \t]*(?:(`{3,})([^`]*)|(~{3,})(.*))", re.DOTALL)
_LANGUAGE = re.compile(r"[\s{.]*([\w+#-]*)")
_BEHIND_WORDS = re.compile(r"[^\s`][ \t]*(`{3,})([\w+.-]*)\s*\Z")
_ONE_LINE = re.compile(r"[ \t]*(`{3,})(?:([a-zA-Z][\w+#-]*)[ \t])?([^`]+)\1[ \t\r]*")
_MOST_INDENT = 3
"""Spaces before a fence; with more it is text: the fence of a docstring ends no block."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    """The first word behind the fence, in lower case; "" without one."""
    body: str


def fenced(text: str, languages: Collection[str]) -> str | None:
    """The first block in one of the languages, else the first without one, else the first.

    None without a block.

    >>> fenced("Run it:\\n```sh\\nls\\n```\\n~~~{.python}\\nx = 1\\n~~~", {"python"})
    'x = 1'
    """
    found = blocks(text) or _one_liners(text)
    for wanted in (languages, {""}):
        found = [block for block in found if block.language in wanted] or found
    return found[0].body if found else None


def blocks(text: str) -> list[Block]:
    """The fenced blocks in their order.

    >>> blocks("1. So:\\n\\n   ```py\\n   x = 1\\n   ```\\n")
    [Block(language='py', body='x = 1')]
    """
    found: list[Block] = []
    lines = text.split("\n")
    marked = [number for number, line in enumerate(lines) if line.lstrip().startswith("```")]
    room = 0  # columns of the list item that a line stands in
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip():
            continue
        item = _ITEM.match(line)
        indent = _indent(line)
        room = len(item.group().expandtabs(4)) if item else min(room, indent)
        opening = _OPENING.fullmatch(line, item.end() if item else 0)
        if opening is None:
            opening = _BEHIND_WORDS.search(line)
            if opening is None or not _opens(opening, lines, at, marked):
                continue
        elif not item and indent > room + _MOST_INDENT:
            continue
        marks, info = (part for part in opening.groups() if part is not None)
        end = _end(lines, at, marks, room + _MOST_INDENT)
        body = _dedented(lines[at:end], room if item else indent)
        if end == len(lines):
            body = _cut_short(body, marks)
        language = _LANGUAGE.match(info)
        found.append(Block(language[1].lower() if language else "", "\n".join(body)))
        at = end + 1
    return found


def _opens(fence: re.Match[str], lines: list[str], at: int, marked: list[int]) -> bool:
    """Whether marks behind words open a block: they name a language, or marks alone come next."""
    if fence.string.count("```") > 1:
        return False
    if fence[2]:
        return True
    following = bisect_left(marked, at)
    return following < len(marked) and not lines[marked[following]].strip().strip("`")


def _end(lines: list[str], at: int, marks: str, most_indent: int) -> int:
    """The closing fence: as many marks at least, alone on a line that is not indented much."""
    for number in range(at, len(lines)):
        line = lines[number].strip()
        if (
            line.startswith(marks)
            and not line.strip(marks[0])
            and _indent(lines[number]) <= most_indent
        ):
            return number
    return len(lines)


def _cut_short(body: list[str], marks: str) -> list[str]:
    """A block without a closing fence ends where marks begin or end a line, if they do."""
    for number, line in enumerate(body):
        if line.startswith(marks):
            return body[:number]
        if line.rstrip().endswith(marks):
            return [*body[:number], line.rstrip().rstrip(marks[0])]
    return body


def _dedented(lines: list[str], opening: int) -> list[str]:
    """Without the opening fence's columns, as far as the first line has them."""
    first = next((line for line in lines if line.strip()), "")
    columns = min(opening, _indent(first))
    return [_without(line, columns) for line in lines] if columns else lines


def _without(line: str, columns: int) -> str:
    spaces = " " * _indent(line)
    return spaces[columns:] + line.lstrip(" \t")


def _indent(line: str) -> int:
    """Columns of white space in front, a tab reaching to the next fourth."""
    return len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(4))


def _one_liners(text: str) -> list[Block]:
    """Lines that are fenced in themselves; Markdown calls them code spans."""
    spans = [_ONE_LINE.fullmatch(line) for line in text.split("\n")]
    return [Block((span[2] or "").lower(), span[3].strip()) for span in spans if span]
