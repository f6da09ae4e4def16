"""`regex`: pays a completion that a pattern matches.

`expected` is the pattern as text, or JSON: `{"pattern": "…", "answer": "…", "full": true}`: with
`answer`, the last match's first group must equal it; `full` asks for the whole completion. A
pattern that backtracks for ever is a timeout: it runs in the pool.
"""

from __future__ import annotations

import re

from engine.reward.rows import ExpectedError, read_expected
from engine.reward.verdict import Verdict

POOLED = True
WARM_UP = ("a", "a")


def verify(completion: str, expected: str) -> Verdict:
    r"""Reward 1 or 0; ExpectedError when the pattern is none.

    >>> verify("The total is 12.", '{"pattern": "total is (\\\\d+)", "answer": "12"}').reward
    1.0
    """
    row = read_expected(expected, "pattern") if expected.startswith("{") else {"pattern": expected}
    try:
        pattern = re.compile(row["pattern"])
    except (re.error, TypeError) as error:
        raise ExpectedError(f"pattern {row['pattern']!r}: {error}") from None
    if row.get("full", False):
        whole = pattern.fullmatch(completion.strip())
        found = [] if whole is None else [whole]
    else:
        found = list(pattern.finditer(completion))
    if not found:
        return Verdict.unparsed()
    answer = found[-1].group(1 if pattern.groups else 0) or ""
    return Verdict.of("answer" not in row or answer == row["answer"], answer)
