"""What is wrong with a config, in our words: Pydantic's findings, and texts that no file can hold.

Knows no kind.
"""

from __future__ import annotations

import difflib
import math
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from engine.contract.errors import ConfigProblem


def text_problems(value: Any, field: str = "") -> list[ConfigProblem]:
    """Texts that not every file, path and database can hold: with half of a surrogate pair or a
    null byte, both of which JSON and YAML can write.
    """
    try:
        written = to_json(value, fallback=str, bytes_mode="base64")
    except PydanticSerializationError:
        written = None  # looked for one by one, which takes ten times as long
    if written is not None and rb"\u0000" not in written:
        return []
    try:
        found = _text_problems(value, field)
    except RecursionError:
        found = []
    if written is None and not found:
        return [ConfigProblem(field or "(config)", None, "is nested too deeply", "flatten it")]
    return found


def _text_problems(value: Any, field: str) -> list[ConfigProblem]:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            shown = value.encode(errors="backslashreplace").decode()
            remedy = "write it as valid Unicode"
            return [ConfigProblem(field or "(config)", _shown(shown), "is no text", remedy)]
        if "\0" in value:
            remedy = "leave that character out"
            return [ConfigProblem(field or "(config)", _shown(value), "holds a null byte", remedy)]
        return []
    if isinstance(value, Mapping):
        keys = _text_problems([key for key in value if isinstance(key, str)], field)
        inner = ((item, f"{field}.{key}".lstrip(".")) for key, item in value.items())
        return keys or [problem for item, name in inner for problem in _text_problems(item, name)]
    if isinstance(value, list | tuple):
        return [problem for item in value for problem in _text_problems(item, field)]
    return []


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[ConfigProblem]:
    """Pydantic's findings in our words, with the nearest setting for an unknown one."""
    return [_problem(detail, model) for detail in error.errors(include_url=False)]


_REMEDIES = {
    "missing": "add it",
    "greater_than": "use a larger value",
    "greater_than_equal": "use a larger value",
    "less_than": "use a smaller value",
    "less_than_equal": "use a smaller value",
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "string_type": "write text, in quotes where YAML would read something else",
    "bool_type": "write true or false, without quotes",
    "literal_error": "use one of these",
}


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> ConfigProblem:
    loc = [str(part) for part in detail["loc"]]
    field = ".".join(loc) or "(config)"
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _settings_at(model, loc[:-1])
        return ConfigProblem(field, None, "is not a setting", nearest(loc[-1], known))
    message = detail["msg"].removeprefix("Value error, ")
    value = None if kind == "missing" else _shown(detail["input"])
    if kind == "value_error" and "; " in message:
        message, remedy = message.split("; ", 1)
        return ConfigProblem(field, value, message, remedy)
    message = message[:1].lower() + message[1:]
    return ConfigProblem(field, value, message, _REMEDIES.get(kind, "correct it"))


def _shown(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, str | int | float | bool) or value is None:
        return value if not isinstance(value, str) or len(value) <= 80 else value[:77] + "…"
    return f"a {type(value).__name__}"


def _settings_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Names a nested model knows; empty when the path leads out of the models.

    An excluded field is no setting: it is there to refuse, or to ignore, a name of the past.
    """
    current: type[BaseModel] | None = model
    for name in path:
        field = current.model_fields.get(name) if current else None
        current = _model_in(field.annotation) if field else None
    fields = current.model_fields if current else {}
    return [name for name, field in fields.items() if not field.exclude]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(part) for part in typing.get_args(annotation))
    return next((part for part in inner if part), None)


def nearest(word: str, known: Collection[str], *, listed: bool = True) -> str:
    """The remedy for an unknown name: the known one like it, else all of them where `listed`.

    >>> nearest("learning_rat", ["learning_rate", "seed"])
    'did you mean learning_rate?'
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if listed and known else "remove it"
