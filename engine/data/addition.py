"""The embedded task: adding two two-digit numbers, `07+85=` → `092`.

All 10,000 zero-padded pairs. Every prompt has 6 characters and every answer 3.
"""

from __future__ import annotations

SOURCE = "embedded:addition"
ALPHABET = "0123456789+="


def rows() -> list[tuple[str, str, str]]:
    """(id, prompt, answer) of each pair, in counting order.

    >>> rows()[785]
    ('07+85', '07+85=', '092')
    """
    return [
        (f"{a:02d}+{b:02d}", f"{a:02d}+{b:02d}=", f"{a + b:03d}")
        for a in range(100)
        for b in range(100)
    ]
