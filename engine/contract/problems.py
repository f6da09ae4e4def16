"""What is wrong with a config, in our words: Pydantic's findings, and texts that no file can hold.

Knows no kind.
"""

from __future__ import annotations

import difflib
import math
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from engine.contract.documents import number_of
from engine.contract.elsewhere import name_here
from engine.contract.errors import MOST_PROBLEMS, ConfigProblem, shown_short


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
    """Pydantic's findings in our words, with the nearest setting for an unknown one.

    Of very many the first in full: the others are counted by whoever shows them.
    """
    found = error.errors(include_url=False)
    told = [_problem(detail, model) for detail in found[:MOST_PROBLEMS]]
    rest = [ConfigProblem("(config)", None, "is wrong too", "correct it")]
    return told + rest * (len(found) - len(told))


_REMEDIES = {
    "missing": "add it",
    "greater_than": "use a larger value",
    "greater_than_equal": "use a larger value",
    "less_than": "use a smaller value",
    "less_than_equal": "use a smaller value",
    "finite_number": "write a finite number",
    "literal_error": "use one of these",
}
_TAKEN = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
"""What a setting takes, by the name of Pydantic's refusal of another type."""


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> ConfigProblem:
    loc = [str(part) for part in detail["loc"]]
    field = ".".join(loc) or "(config)"
    kind = detail["type"]
    if kind == "extra_forbidden":
        return ConfigProblem(field, None, "is not a setting", _meant(model, loc))
    value = None if kind == "missing" else _shown(detail["input"])
    if kind in _TAKEN:
        given = detail["input"]
        problem = f"takes {_TAKEN[kind]}, and this is read as {_read_as(given)}"
        return ConfigProblem(field, value, problem, _instead(kind, given, _field_at(model, loc)))
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error" and "; " in message:
        message, remedy = message.split("; ", 1)
        return ConfigProblem(field, value, message, remedy)
    message = message[:1].lower() + message[1:]
    remedy = _REMEDIES.get(kind, "correct it")
    if kind == "literal_error":
        remedy = _like(str(detail["input"]), _QUOTED.findall(detail["ctx"]["expected"])) or remedy
    return ConfigProblem(field, value, message, remedy)


_QUOTED = re.compile("'([^']*)'")


def _like(word: str, known: Collection[str]) -> str | None:
    """`did you mean …?`, where one of the known is like it."""
    said = nearest(word, known, listed=False)
    return said if said.startswith("did you mean") else None


def _meant(model: type[BaseModel], loc: Sequence[str]) -> str:
    """The remedy for an unknown setting: beside it, by its name elsewhere, or one like it."""
    *above, word = loc
    known = _settings_at(model, above)
    same = next((name for name in known if name.lower() == word.lower()), None)
    here = same or name_here(word, every_setting(model))
    if here is not None and here != ".".join(loc):
        return f"did you mean {here.removeprefix('.'.join([*above, '']))}?"
    return nearest(word, known)


def every_setting(model: type[BaseModel], above: str = "") -> list[str]:
    """Dotted names of all that a config can say, sections left out."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        inner = _model_in(field.annotation)
        if inner is not None:
            found += every_setting(inner, f"{above}{name}.")
            continue
        found.append(above + name)
    return found + [above + name for name in getattr(model, "further_settings", ())]


def _read_as(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, float):
        return "a number with a point" if math.isfinite(value) else "no finite number"
    kinds = ((str, "text"), (int, "a whole number"), (Mapping, "a mapping"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "nothing")


_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "n", "0"), "false"),
}
_OTHER_NUMBERS = re.compile(r"0[xX][0-9a-fA-F]+|0o[0-7]+|[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?")
"""Spellings of one number that another reader knows."""


def _instead(kind: str, given: Any, field: FieldInfo | None) -> str:
    """What to write for a value of another type."""
    text = str(shown_short(given)).strip()
    if kind == "string_type" and isinstance(given, bool | int | float):
        return f"write it in quotes: '{text.lower() if isinstance(given, bool) else text}'"
    if kind not in {"float_type", "int_type", "bool_type"}:
        return f"write {_TAKEN[kind]}"
    if kind == "bool_type":
        meant = _SWITCHES.get(text.lower())
    else:
        known = isinstance(given, str | int | float) and not isinstance(given, bool)
        meant = _number_meant(text, whole=kind == "int_type") if known else None
    if meant is not None:
        return f"write {meant}" + (", without quotes" if text == meant else "")
    default = field.default if field is not None else None
    example = f", such as {default}" if type(default) in {int, float} else ""
    return f"write {_TAKEN[kind]}{example}"


def _number_meant(text: str, *, whole: bool) -> str | None:
    """The number that a text most likely stands for, as it is written here."""
    found = number_of(text)
    if found is None and len(text) <= _LONGEST_NUMBER and _OTHER_NUMBERS.fullmatch(text):
        plain = text.replace("_", "")
        found = int(plain, 0) if plain[1:2] in {"x", "X", "o"} else number_of(plain.lstrip("0"))
    if found is None or (whole and found != int(found)):
        return None
    return str(int(found)) if whole else (text if number_of(text) is not None else str(found))


_LONGEST_NUMBER = 20


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
    return [name for name, field in _fields_at(model, path).items() if not field.exclude]


def _field_at(model: type[BaseModel], path: Sequence[str]) -> FieldInfo | None:
    return _fields_at(model, path[:-1]).get(path[-1]) if path else None


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> Mapping[str, FieldInfo]:
    current: type[BaseModel] | None = model
    for name in path:
        field = current.model_fields.get(name) if current else None
        current = _model_in(field.annotation) if field else None
    return current.model_fields if current else {}


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
    here = name_here(word, list(known))
    if here is not None:
        return f"did you mean {here}?"
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if listed and known else "remove it"
