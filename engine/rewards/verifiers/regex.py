"""`regex`: pays a completion that a pattern matches.

`expected` is the pattern as text, or JSON: `{"pattern": "…", "answer": "…", "full": true}`: with
`answer`, a text or a number, the last match's first group must equal it; `full` asks for the whole
completion. A pattern that backtracks for ever is a timeout: it runs in the pool.
"""

from __future__ import annotations

import re
from typing import Any

from engine.contract.golds.rows import ExpectedError, read_expected, refused, wanted
from engine.rewards.judgement import Verdict

POOLED = True
WARM_UP = ("a", "a")


def verify(completion: str, expected: str) -> Verdict:
    r"""Reward 1 or 0; ExpectedError when the pattern is none.

    >>> verify("The total is 12.", '{"pattern": "total is (\\\\d+)", "answer": "12"}').reward
    1.0
    """
    row = read_expected(expected, "pattern") if expected.startswith("{") else {"pattern": expected}
    source = wanted(row, "pattern", str, "a regular expression as text")
    try:
        pattern = re.compile(source)
    except re.error as error:
        raise ExpectedError(f"pattern {source!r}: {error}") from None
    gold = _gold(row)
    if wanted({"full": False, **row}, "full", bool, "true or false"):
        whole = pattern.fullmatch(completion.strip())
        found = [] if whole is None else [whole]
    else:
        found = list(pattern.finditer(completion))
    if not found:
        return Verdict.unparsed()
    answer = found[-1].group(1 if pattern.groups else 0) or ""
    return Verdict.of(gold is None or answer == gold, answer)


def _gold(row: dict[str, Any]) -> str | None:
    """The text that the group must equal; of a number its text."""
    if "answer" not in row:
        return None
    match row["answer"]:
        case bool():
            pass
        case float() as number if number.is_integer():
            return str(int(number))
        case int() | float() as number:
            return str(number)
        case str() as text:
            return text
    raise refused("answer", row["answer"], "the text that the group must equal")
