"""Amounts as people write them at a door: numbers, and no text, `true` or `false` instead of one.

What they wrote is told again as they wrote it.
"""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _no_number(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        raise ValueError("is no day; write it like 2030-12-01")  # noqa: TRY004 - pydantic's
    return value


Amount = Annotated[float, Field(strict=True)]
Count = Annotated[int, Field(strict=True, le=2**31 - 1)]
"""As large as a column of every database holds."""
Day = Annotated[datetime.date, BeforeValidator(_no_number)]
"""Pydantic takes a number for seconds since 1970."""


def exact(amount: float) -> str:
    """Every digit of it, and no more: read again it is the same number.

    >>> exact(5.0), exact(1234567.89), exact(0.1), exact(1e16)
    ('5', '1234567.89', '0.1', '1e+16')
    """
    return repr(float(amount)).removesuffix(".0")


def dollars(amount: float) -> str:
    """US dollars in every digit, cents in two.

    >>> dollars(5.0), dollars(2.5), dollars(1234567.89), dollars(0.001)
    ('$5', '$2.50', '$1234567.89', '$0.001')
    """
    told = exact(amount)
    return f"${told}0" if re.fullmatch(r"\d+\.\d", told) else f"${told}"
