"""How commands print: JSON for programs, aligned columns for people."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size

from engine.contract.errors import ConfigError, ConfigProblem


def show_what_can_be_shown() -> None:
    """A character that the terminal or file cannot take becomes a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """One JSON document on standard output; what that cannot take is written as escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    typer.echo(text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; the last one is not padded.

    On a terminal the widest ones are cut until a row fits its width; what reads a pipe gets all.
    """
    clean = [[plain(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[index]) for row in clean) for index in range(len(head))]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - len(_BETWEEN) * (len(widths) - 1)
        widths = fitted(widths, room)
    for row in clean:
        cells = [_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        typer.echo(_BETWEEN.join(cells).rstrip())


_BETWEEN = "  "
_LEAST_CELL = 4
"""Cells of a terminal: below this a column says nothing."""


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit together, as far as columns of 4 can: the widest give first.

    >>> fitted([3, 9, 120], 40)
    [3, 9, 28]
    """
    found = list(widths)
    while sum(found) > room and max(found) > _LEAST_CELL:
        found[found.index(max(found))] -= 1
    return found


def _cell(text: str, width: int) -> str:
    """Text padded or cut to so many cells of a terminal; a cut is seen."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def plain(text: str) -> str:
    """Text that others wrote, without what could move a terminal's cursor."""
    return "".join(char if char.isprintable() else "�" for char in text)


def alone(option: str, target: object) -> ConfigError:
    """The refusal of a file and of JSON both on standard output."""
    problem = "is standard output, where --json prints"
    return ConfigError([ConfigProblem(option, str(target), problem, "leave one of the two out")])


def note(message: str) -> None:
    """A sentence for the person at the terminal, on standard error."""
    typer.echo(message, err=True)
