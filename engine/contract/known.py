"""What a record says, if it says it: results, samples and traces may be of another version.

A value that is not what its reader takes it for is not known, and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 1e300
"""Of a number that is reckoned with: sums and hundredfolds of those beyond it are infinite."""
LARGEST_WHOLE = 2**63 - 1


def real(value: Any) -> float | None:
    """A finite number; None for anything else, also for true and false.

    >>> real(3), real(0.5), real(float("nan")), real(True), real("3"), real(10**400)
    (3.0, 0.5, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN is not below anything.
    return float(value) if abs(value) <= LARGEST else None


def whole(value: Any) -> int | None:
    """A whole number of 64 bits; None for anything else.

    >>> whole(3), whole(3.0), whole(False), whole(2**63)
    (3, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= LARGEST_WHOLE else None


def pair(value: Any) -> tuple[float | None, float | None]:
    """The two ends of an interval.

    >>> pair([0.1, 0.2]), pair([0.1]), pair("ab")
    ((0.1, 0.2), (None, None), (None, None))
    """
    if isinstance(value, list | tuple) and len(value) == 2:
        return real(value[0]), real(value[1])
    return None, None


def setting_of(settings: Mapping[str, Any], dotted: str) -> Any:
    """The value of a setting by its dotted name; None where there is none.

    >>> setting_of({"data": {"split_seed": 3}}, "data.split_seed")
    3
    """
    found: Any = settings
    for name in dotted.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
