"""Numbers and switches in an address, as strictly as in a config: `1_0`, `01` and `yes` are none.

Every route's own annotations say which of its values are numbers, so none can forget it. What a
number may be is the route's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends, Query
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engine.contract.documents import number_of


class _Form(NamedTuple):
    """How a kind of value is written."""

    word: str
    remedy: str


_FORMS: Mapping[type, _Form] = {
    bool: _Form("true or false", "write true or false"),
    int: _Form("a whole number", "write it in plain digits, as in 10"),
    float: _Form("a number", "write it in plain digits, as in 0.5"),
}


async def plainly_written(request: Request) -> None:
    """For every route. Raises RequestValidationError, which names field, value and remedy."""
    fields = _fields(request.scope["endpoint"])
    given = [
        *(("path", name, str(value)) for name, value in request.path_params.items()),
        *(("query", name, value) for name, value in request.query_params.multi_items()),
    ]
    _require(fields, given)


def require_plain(model: type[BaseModel], given: Mapping[str, str]) -> None:
    """The same for a query that a route reads as this model by itself."""
    _require(dict(_of_model(model)), [("query", name, value) for name, value in given.items()])


def _require(fields: Mapping[str, type], given: Iterable[tuple[str, str, str]]) -> None:
    """`given`: place, name and value. An empty field of a form is the route's to judge: for most it
    is an open end.
    """
    wrong = [
        {
            "type": "not_plain",
            "loc": (place, name),
            "msg": f"should be {_FORMS[kind].word}",
            "input": value,
            "ctx": {"remedy": _FORMS[kind].remedy},
        }
        for place, name, value in given
        if value and (kind := fields.get(name)) is not None and not _is(kind, value)
    ]
    if wrong:
        raise RequestValidationError(wrong)


def _is(kind: type, text: str) -> bool:
    if kind is bool:
        return text in {"true", "false"}
    found = number_of(text)
    return isinstance(found, int) if kind is int else found is not None


@cache
def _fields(endpoint: Any) -> Mapping[str, type]:
    """Name in the address → kind, of the values of a route that are numbers or switches."""
    return dict(_of_hints(get_type_hints(endpoint, include_extras=True)))


def _of_hints(hints: Mapping[str, Any]) -> Iterator[tuple[str, type]]:
    for name, hint in hints.items():
        if name == "return":
            continue
        metadata = getattr(hint, "__metadata__", ())
        for dependency in (one.dependency for one in metadata if isinstance(one, Depends)):
            yield from _of_hints(get_type_hints(dependency, include_extras=True))
        marks = [mark for mark in metadata if isinstance(mark, FieldInfo)]
        leaves = set(_leaves(hint))
        for model in leaves:
            if isinstance(model, type) and issubclass(model, BaseModel) and _is_query(marks):
                yield from _of_model(model)
        kind = _kind(leaves)
        if kind is not None:
            alias = next((mark.alias for mark in marks if mark.alias), None)
            yield alias or name, kind


def _of_model(model: type[BaseModel]) -> Iterator[tuple[str, type]]:
    for name, field in model.model_fields.items():
        kind = _kind(set(_leaves(field.annotation)))
        if kind is not None:
            yield field.alias or name, kind


def _is_query(marks: list[FieldInfo]) -> bool:
    return any(isinstance(mark, Query) for mark in marks)


def _kind(leaves: set[Any]) -> type | None:
    """The one kind of number that it is; None where it may be a text too."""
    kinds = leaves - {NoneType}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= set(_FORMS) else None


def _leaves(hint: Any) -> Iterator[Any]:
    """The types that stand in an annotation."""
    if get_origin(hint) is Annotated:
        yield from _leaves(get_args(hint)[0])
    elif get_args(hint):
        for part in get_args(hint):
            yield from _leaves(part)
    else:
        yield hint
