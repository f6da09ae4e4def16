"""The OpenAPI document, with what the door adds to every operation: how one signs in, which scope
is needed, and the answers 401 and 403.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from app.web.problems import MEDIA_TYPE
from app.web.scopes import is_open, scope_of

_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Made by `cockpit token new --scope read|operate|admin`.",
    },
    "browser": {
        "type": "apiKey",
        "in": "cookie",
        "name": "nightlane-8765",
        "description": "Set by a one-time address (`cockpit open`); the number is the port's.",
    },
}
_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457; `code` never changes its meaning.",
    "properties": {
        **dict.fromkeys(("type", "title", "code", "detail"), _TEXT),
        "status": {"type": "integer"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["type", "title", "status", "code", "detail", "problems"],
}
_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Documented(FastAPI):
    """An application whose document tells of the door."""

    def openapi(self) -> dict[str, Any]:
        """The document; made once."""
        document = super().openapi()
        components = document.setdefault("components", {})
        if "securitySchemes" not in components:
            components["securitySchemes"] = _SCHEMES
            components.setdefault("schemas", {})["Problem"] = _PROBLEM
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    _tell(operation, method.upper(), path)
        return document


def _tell(operation: dict[str, Any], method: str, path: str) -> None:
    if is_open(path):
        operation["security"] = []
        return
    scope = scope_of(method, path)
    operation["security"] = [{name: []} for name in _SCHEMES]
    operation["x-scope"] = scope.value
    operation["responses"] |= {
        "401": {"description": "No token, or one that is over.", "content": _CONTENT},
        "403": {
            "description": f"The scope `{scope}` is needed, or another site asks.",
            "content": _CONTENT,
        },
        "429": {"description": "Too many wrong tokens came in.", "content": _CONTENT},
    }
