"""Numbers on a command line, as strictly as in a config: `1_000`, `inf` and `٣` are none."""

from __future__ import annotations

from collections.abc import Callable

import typer


def amount(given: str | float) -> float:
    """Raises typer.BadParameter, which ends the command with what is wrong."""
    from engine.contract.documents import number_of  # noqa: PLC0415 - keeps --help light

    found = number_of(given.strip()) if isinstance(given, str) else given
    if found is None:
        raise typer.BadParameter(f"{str(given)[:80]!r} is not a number; write it in plain digits")
    return float(found)


def count(given: str | int) -> int:
    """The same for a whole number."""
    found = amount(given)
    if not found.is_integer() or (isinstance(given, str) and not given.strip("+- ").isdigit()):
        raise typer.BadParameter(f"{str(given)[:80]!r} is not a whole number; write it in digits")
    return int(found)


def within(low: int, high: int | None = None) -> Callable[[str | int], int]:
    """A parser of whole numbers from `low` to `high`, both with it."""

    def parse(given: str | int) -> int:
        found = count(given)
        if found < low or (high is not None and found > high):
            end = f"from {low} on" if high is None else f"from {low} to {high}"
            raise typer.BadParameter(f"{found} is too {'small' if found < low else 'large'}; {end}")
        return found

    return parse


job_number = within(1, 2**63 - 1)
"""Of a job, or of a sweep."""
