"""What every section of the stage-2 config shares: closed, frozen, strictly typed, refusing well.

Knows no setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """A mapping of the config whose keys are all known. `true` is no number, `"5"` neither."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def absent() -> Any:
    """The default of a section that has a rule of its own: it is validated like one given."""
    return {}


def refusal(location: Sequence[str], value: Any, message: str) -> ValidationError:
    """An error at one field below the section that raises it; `message` is `problem; remedy`."""
    return refusals([(location, value, message)])


def refusals(found: Iterable[tuple[Sequence[str], Any, str]]) -> ValidationError:
    """Several of them."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("value_error", "{message}", {"message": message}),
            loc=tuple(location),
            input=value,
        )
        for location, value, message in found
    ]
    return ValidationError.from_exception_data("config", details)


def legacy(message: str) -> BeforeValidator:
    """A setting that is gone: its presence fails, whatever its value. `problem; remedy`."""

    def refuse(_: Any) -> Any:
        raise ValueError(message)

    return BeforeValidator(refuse)


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown name.

    >>> nearest("learning_rat", ["learning_rate", "seed"])
    'did you mean learning_rate?'
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "remove it"
