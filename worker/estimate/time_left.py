"""How long a running job needs yet: what its engine expected last, less the time since it said so.

The one place that counts it down. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.contract.known import real

LONGEST_S = 10 * 365.25 * 86400.0
"""Ten years: whatever is expected to take longer, nobody can tell when it ends."""


def left_s(result: Mapping[str, Any], now: float) -> float | None:
    """Seconds, below zero those that it is overdue by; None where the engine expects nothing,
    or more than LONGEST_S.

    `result`: the live one, with `eta_s` (seconds) and `eta_at` (Unix seconds at which that was
    said; without it, now).

    >>> left_s({"eta_s": 90, "eta_at": 1000}, now=1060)
    30.0
    """
    expected, said = real(result.get("eta_s")), real(result.get("eta_at"))
    if expected is None or abs(expected) > LONGEST_S:
        return None
    return expected - (0.0 if said is None else max(0.0, now - said))
