"""`json_schema`: pays JSON that a schema describes, and that equals the answer if there is one.

`expected` is JSON: `{"schema": {…}, "answer": …}`. The JSON is the first block fenced as JSON, else
the first without a language, else the first, else the whole completion; values are equal as JSON
has them, so that 1 is 1.0 and not true, and an object has no order.

Schema words: type, enum, const, properties, required, additionalProperties (a boolean), items,
minItems, maxItems, minimum, maximum, minLength, maxLength, pattern. Any other word is an error of
the row: it would be a rule that nobody checks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from engine.rewards.judgement import Verdict
from engine.rewards.text.fences import fenced
from engine.rewards.text.reading import without_thinking
from engine.rewards.text.rows import ExpectedError, read_expected, refused

POOLED = True
WARM_UP = ("{}", '{"schema": {}}')

_JSON = frozenset({"json", "json5", "jsonc"})
"""Languages of a fence; what some of them allow besides, comments and the like, is no JSON."""
_NOTES = {"title", "description", "$schema", "examples", "default"}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def verify(completion: str, expected: str) -> Verdict:
    """Reward 1 or 0.

    >>> row = '{"schema": {"type": "object", "required": ["a"]}}'
    >>> verify('{"a": 1}', row).reward
    1.0
    """
    row = read_expected(expected, "schema")
    text = without_thinking(completion)
    block = fenced(text, _JSON)
    answer = (text if block is None else block).strip()
    try:
        value = json.loads(answer, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return Verdict.unparsed(answer or None)
    fits = _fits(value, row["schema"])
    return Verdict.of(fits and ("answer" not in row or _same(value, row["answer"])), answer)


def _no_json(name: str) -> None:
    """`NaN` and the infinities are Python's own."""
    raise ValueError(f"{name} is no JSON")


def _same(left: Any, right: Any) -> bool:
    """JSON's equality; with a stack of its own, as JSON may be nested deeper than Python calls."""
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if _number(one) is not None and _number(other) is not None:
            equal = one == other
        elif type(one) is not type(other):
            equal = False
        elif isinstance(one, dict):
            equal = one.keys() == other.keys()
            pairs += [(value, other[name]) for name, value in one.items()] if equal else []
        elif isinstance(one, list):
            equal = len(one) == len(other)
            pairs += zip(one, other, strict=True) if equal else []
        else:
            equal = one == other
        if not equal:
            return False
    return True


def _fits(value: Any, schema: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise refused("a schema", schema, "an object, or true or false")
    for word, (good, words) in _RULES.items():
        if word in schema and not good(schema[word]):
            raise refused(f"schema word {word!r}", schema[word], words)
    unknown = set(schema) - set(_CHECKS) - _NOTES
    if unknown:
        raise ExpectedError(f"schema word {min(unknown)!r} is not checked here")
    return all(
        _CHECKS[word](value, rule, schema) for word, rule in schema.items() if word in _CHECKS
    )


def _is(value: Any, rule: str | list[str], _schema: Any) -> bool:
    if isinstance(rule, list):
        return any(_is(value, one, _schema) for one in rule)
    if rule not in _TYPES:
        raise ExpectedError(f"schema type {rule!r} is none of {', '.join(_TYPES)}")
    if isinstance(value, bool):
        return rule == "boolean"
    if rule == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[rule])


def _properties(value: Any, rule: dict[str, Any], _schema: Any) -> bool:
    return not isinstance(value, dict) or all(
        _fits(value[name], part) for name, part in rule.items() if name in value
    )


def _additional(value: Any, rule: bool, schema: Any) -> bool:
    return (
        rule or not isinstance(value, dict) or value.keys() <= schema.get("properties", {}).keys()
    )


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not math.isnan(value) else None


_CHECKS: dict[str, Any] = {
    "type": _is,
    "enum": lambda value, rule, _: any(_same(value, one) for one in rule),
    "const": lambda value, rule, _: _same(value, rule),
    "properties": _properties,
    "required": lambda value, rule, _: not isinstance(value, dict) or value.keys() >= set(rule),
    "additionalProperties": _additional,
    "items": lambda value, rule, _: (
        not isinstance(value, list) or all(_fits(item, rule) for item in value)
    ),
    "minItems": lambda value, rule, _: not isinstance(value, list) or len(value) >= rule,
    "maxItems": lambda value, rule, _: not isinstance(value, list) or len(value) <= rule,
    "minimum": lambda value, rule, _: (n := _number(value)) is None or n >= rule,
    "maximum": lambda value, rule, _: (n := _number(value)) is None or n <= rule,
    "minLength": lambda value, rule, _: not isinstance(value, str) or len(value) >= rule,
    "maxLength": lambda value, rule, _: not isinstance(value, str) or len(value) <= rule,
    "pattern": lambda value, rule, _: not isinstance(value, str) or bool(re.search(rule, value)),
}


def _are_texts(rule: Any) -> bool:
    return isinstance(rule, list) and all(isinstance(item, str) for item in rule)


def _is_length(rule: Any) -> bool:
    return isinstance(rule, int) and not isinstance(rule, bool)


_LENGTH = (_is_length, "a whole number")
_BOUND = (lambda rule: _number(rule) is not None, "a number")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (lambda rule: isinstance(rule, str) or _are_texts(rule), "a type or a list of types"),
    "enum": (lambda rule: isinstance(rule, list), "a list of values"),
    "properties": (lambda rule: isinstance(rule, dict), "an object with one schema a name"),
    "required": (_are_texts, "a list of names"),
    "additionalProperties": (lambda rule: isinstance(rule, bool), "true or false"),
    "items": (lambda rule: isinstance(rule, dict | bool), "one schema"),
    "minItems": _LENGTH,
    "maxItems": _LENGTH,
    "minimum": _BOUND,
    "maximum": _BOUND,
    "minLength": _LENGTH,
    "maxLength": _LENGTH,
    "pattern": (lambda rule: isinstance(rule, str), "a regular expression as text"),
}
"""What each word's value must be: one that is not would be a rule that means something else."""
