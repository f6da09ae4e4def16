"""How the published harnesses read a gold number, to the letter. Knows no completion."""

from __future__ import annotations

import re

ALLENAI_NUMBER = re.compile(r"[-+]?\d*\.\d+|\d+")
"""open-instruct: a sign counts only before a number with a decimal point."""
BARE_NUMBER = re.compile(r"-?[\d.]*\d[\d.]*")
"""What `bare` leaves of a number that lm-evaluation-harness finds in a completion."""

_IGNORED = re.compile(r"(?s)^.*#### |[,$]|\.$")


def bare(text: str) -> str:
    """What the harness's exact_match compares: lower case, no `,`, no `$`, no reasoning.

    >>> bare("9 * 200 = 1800\\n#### $1,800")
    '1800'
    """
    return _IGNORED.sub("", text.strip()).lower()
