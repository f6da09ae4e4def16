"""What the sections of a config share: closed, frozen, strict, no NaN, refusing well.

Strict: nothing is converted, `true` is no number and `"5"` neither. Knows no setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """A mapping whose keys are all known; the text under a field is its help."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )


class StrictSection(Section):
    """One whose defaults are not validated: a setting of the past refuses by being present."""

    model_config = ConfigDict(validate_default=False)


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
