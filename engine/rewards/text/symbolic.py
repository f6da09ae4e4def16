r"""Are two LaTeX answers the same number or expression? By sympy, as the harnesses ask.

May run for ever on an input made for it (`2^{10^9}`): call it where somebody can kill it.
"""

from __future__ import annotations

import sympy
from sympy.parsing.latex import parse_latex


def same_value(left: str, right: str) -> bool:
    """Whether sympy simplifies the difference to zero; False for what it cannot read.

    >>> same_value(r"\\frac{1}{2}", "0.5")
    True
    """
    try:
        difference = parse_latex(left) - parse_latex(right)
        return bool(sympy.simplify(difference) == 0)
    except (MemoryError, ImportError):
        raise
    except Exception:  # noqa: BLE001 - sympy raises a dozen kinds for a text it cannot read
        return False
