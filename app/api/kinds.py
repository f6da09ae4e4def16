"""The kinds of job and the JSON schema of each one's config."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from engine.contract.kind import Kind
from engine.contract.registry import UnknownKindError, get_kind, kinds

router = APIRouter(prefix="/api/v1/kinds", tags=["kinds"])


@router.get("")
def every_kind() -> dict[str, Any]:
    """Name, summary and schema of each kind, in alphabetical order."""
    return {"kinds": [_described(kind) for kind in kinds().values()]}


@router.get("/{name}")
def one_kind(name: str) -> dict[str, Any]:
    """One kind; an unknown name is not found, and answered with the nearest."""
    try:
        return _described(get_kind(name))
    except UnknownKindError as error:
        raise HTTPException(404, str(error)) from None


def _described(kind: Kind) -> dict[str, Any]:
    schema = kind.config.model_json_schema()
    return {"name": kind.name, "summary": kind.summary, "schema": schema}
