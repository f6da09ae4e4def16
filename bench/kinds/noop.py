"""A kind with a config of a few fields that does nothing: what is left is the queue."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.contract.kind import Kind


class Config(BaseModel):
    """As much as the peers' tasks are given."""

    model_config = ConfigDict(extra="forbid")

    number: int = 0
    text: str = ""


def run(_attempt: Any) -> dict[str, Any]:
    """Nothing."""
    return {"kind": "noop"}


KIND = Kind(name="noop", summary="Nothing.", config=Config, entry=f"{__name__}:run")
