"""In which form a completion writes its answer, whoever judges it.

A policy may learn a form under the prompts that it trains on and lose another one; the share of
each says so before a score does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

FORMS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "boxed": re.compile(r"\\(?:f?boxed)\s*\{"),
        "hashes": re.compile(r"####"),
        "answer_is": re.compile(r"\banswer\s+is\b", re.IGNORECASE),
        "tags": re.compile(r"<answer>", re.IGNORECASE),
        "code": re.compile(r"```"),
    }
)
"""`\\boxed{18}`, `#### 18`, "The answer is 18.", `<answer>18</answer>`, a fenced block of code. A
completion may hold several."""


NUMBER, NO_FORM = "number", "none"
"""Of a text without any of them: with a number, of which verifiers take the last, or without."""


def forms_of(text: str) -> list[str]:
    """The forms in which a text writes its answer.

    >>> forms_of("so 18 of 20"), forms_of("#### 18"), forms_of("nothing")
    (['number'], ['hashes'], ['none'])
    """
    found = [name for name, pattern in FORMS.items() if pattern.search(text)]
    return found or [NUMBER if any(map(str.isdigit, text)) else NO_FORM]


def form_shares(
    texts: Sequence[str], right: Sequence[bool | None], *, seen: bool = False
) -> dict[str, float]:
    """`format/NAME` of all texts, and `format/NAME/right` and `/wrong` among those that were solved
    and those that were not; empty where no text has any of the forms, and none was `seen` before.

    >>> form_shares(["so \\\\boxed{3}", "#### 4"], [True, False])["format/boxed/right"]
    1.0
    """
    found: dict[str, float] = {}
    for name, pattern in FORMS.items():
        has = [pattern.search(text) is not None for text in texts]
        found |= shares_of(f"format/{name}", has, right)
    return found if seen or any(found.values()) else {}


def shares_of(name: str, has: Sequence[bool], right: Sequence[bool | None]) -> dict[str, float]:
    """A share of all, of those that were solved and of those that were not; none of nobody.

    >>> shares_of("cut", [True, False, True], [True, False, False])["cut/wrong"]
    0.5
    """
    sides = {
        name: list(has),
        f"{name}/right": [one for one, solved in zip(has, right, strict=True) if solved],
        f"{name}/wrong": [one for one, solved in zip(has, right, strict=True) if solved is False],
    }
    return {side: sum(ones) / len(ones) for side, ones in sides.items() if ones}
