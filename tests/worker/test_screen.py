"""What a program printed, as a terminal would have left it to read."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import screen
from worker.attempt.supervisor import last_line
from worker.screen import lines_on_screen, plain


def test_the_examples_hold() -> None:
    """They are the documentation."""
    assert doctest.testmod(screen).failed == 0


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("\x1b[1;38;5;208mWARN\x1b[0m left", "WARN left"),
        ("\x1b]8;;https://example.org\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b[2K\x1b[1Gagain", "again"),
        ("\x1b[\x1b[31m31mhidden", "�[31mhidden"),  # what is left over never becomes a sequence
        ("torn \x1b[3", "torn �[3"),
        ("tab\tand \x00 and \u202e", "tab\tand � and �"),
    ],
)
def test_control_sequences_are_no_text(printed: str, read: str) -> None:
    """Colours, links, titles and moves of the cursor."""
    assert plain(printed) == read


@given(st.text(alphabet=st.sampled_from("\x1b[]0;31m\x07\\@\r\n\x9b ab"), max_size=40))
def test_nothing_that_could_move_a_cursor_is_left(text: str) -> None:
    """Whatever a model or a library prints."""
    for line in [plain(text), *lines_on_screen(text)]:
        assert all(char.isprintable() or char == "\t" for char in line)


def test_the_reason_of_a_crash_is_the_line_without_its_bar_and_its_colours(tmp_path: Path) -> None:
    """It stands in the database, on pages, in messages."""
    log = tmp_path / "engine.log"
    log.write_bytes(b"x\n\r 50%|##  |\r\x1b[31mRuntimeError\x1b[0m: out of ideas\r\n\r\n")

    assert last_line(log) == "RuntimeError: out of ideas"
