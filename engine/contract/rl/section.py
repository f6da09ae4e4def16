"""What every section of the `rl_run` config shares: closed, frozen, no NaN. Knows no setting."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping whose keys are all known; the text under a field is its help."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )
