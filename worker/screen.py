"""What a terminal would have left to read of a program's output.

Without colours and other control sequences, and without what was written over: a progress bar
writes itself anew behind each carriage return, hundreds of times in one line. And how words are
looked for in what was written. Knows no file.
"""

from __future__ import annotations

import re
import unicodedata

_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # ECMA-48: CSI with its parameters, as of a colour
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC up to its end, as of a link or a window's title
    r"|[@-Z\\^_]"  # the short ones
    r")"
)


def plain(line: str) -> str:
    """A line as it reads; what else could move a cursor stands there as a replacement character.

    >>> plain("\\x1b[31mRuntimeError\\x1b[0m: no\\x07")
    'RuntimeError: no�'
    """
    shown = _SEQUENCE.sub("", line)
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in shown)


def lines_on_screen(text: str) -> list[str]:
    """The lines that are not empty, each as its last carriage return left it.

    >>> lines_on_screen("loading\\r\\n  1%\\r 99%\\rdone\\n\\nnext")
    ['loading', 'done', 'next']
    """
    found = []
    for line in text.split("\n"):
        written = [part for part in line.split("\r") if part.strip()]
        if written:
            found.append(plain(written[-1]))
    return found


def folded(text: str) -> str:
    """Text as a search compares it: without case and forms of one character (Unicode, TR 15, 5.18).

    >>> folded("E\\u0301COLE") == folded("école"), folded("GROSS") == folded("groß")
    (True, True)
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
