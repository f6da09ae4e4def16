"""Where in a YAML document a setting stands, so that what is wrong with it is said at its line.

Knows no kind: it is asked for dotted names, as problems carry them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml

from engine.contract.documents import MAX_CONFIG_BYTES
from engine.contract.errors import ConfigProblem

_MEANT = re.compile(r"did you mean (?P<words>[^?]+)\?")


class Place(NamedTuple):
    """A piece of one line; lines count from 1, columns from 0, the end is behind the piece."""

    line: int
    begin: int
    end: int


class LineProblem(NamedTuple):
    """A problem with where it stands and what may be written instead."""

    problem: ConfigProblem
    place: Place | None
    """None where the document says nothing of it: it is missing."""
    instead: str | None
    """What to write in that place, where the remedy names one thing."""


def at_lines(text: str, problems: Sequence[ConfigProblem]) -> list[LineProblem]:
    """Each problem at its line, in their order."""
    if len(text) > MAX_CONFIG_BYTES:
        return [LineProblem(one, None, None) for one in problems]
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return [LineProblem(one, _of_mark(text, error), None) for one in problems]
    except (yaml.YAMLError, ValueError, RecursionError):
        return [LineProblem(one, None, None) for one in problems]
    return [_at_line(root, one) for one in problems]


def _at_line(root: yaml.Node | None, problem: ConfigProblem) -> LineProblem:
    found = _found(root, [*filter(None, re.split(r"[.\[\]]", problem.field))])
    if found is None:
        return LineProblem(problem, None, None)
    key, value = found
    # A setting that is none is wrong by its name, any other one by its value.
    wrong = key if problem.value is None or not isinstance(value, yaml.ScalarNode) else value
    meant = _MEANT.fullmatch(problem.remedy)
    words = meant["words"] if meant and isinstance(wrong, yaml.ScalarNode) else None
    if words and wrong is key and "." in words:
        words = None  # it belongs into another section
    return LineProblem(problem, _of_node(wrong), words)


def _found(root: yaml.Node | None, path: Sequence[str]) -> tuple[yaml.Node, yaml.Node] | None:
    """(the name, the value) of a setting; of a list's item (the item, the item)."""
    found, node = None, root
    for part in path:
        here = None
        if isinstance(node, yaml.MappingNode):
            here = next((pair for pair in node.value if pair[0].value == part), None)
        elif isinstance(node, yaml.SequenceNode) and part.isdecimal():
            items = node.value[int(part) :][:1]
            here = (items[0], items[0]) if items else None
        if here is None:
            # What a section lacks is said at the section.
            return found
        found, node = here, here[1]
    return found


def _of_node(node: yaml.Node) -> Place:
    begin, end = node.start_mark, node.end_mark
    same = end.line == begin.line
    return Place(begin.line + 1, begin.column, end.column if same else begin.column + 1)


def _of_mark(text: str, error: yaml.MarkedYAMLError) -> Place | None:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return None
    lines = text.splitlines() or [""]
    line = min(mark.line, len(lines) - 1)
    return Place(line + 1, 0, len(lines[line]))
