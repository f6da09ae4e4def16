"""`json_schema`: pays JSON that a schema describes, and that equals the answer if there is one.

`expected` is JSON: `{"schema": {…}, "answer": …}`. The JSON is the first block fenced as JSON, else
the first without a language, else the first, else the whole completion; values are equal as JSON
has them, so that 1 is 1.0 and not true, and an object has no order.

The schema is one of draft 2020-12 (https://json-schema.org/draft/2020-12). A word that is none of
its words is an error of the row: it would be a rule that nobody checks. Nothing is fetched: a
`$ref` leads within the schema.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from engine.contract.golds.rows import ExpectedError, read_expected, refused
from engine.rewards.judgement import Verdict
from engine.rewards.text.fences import fenced
from engine.rewards.text.reading import without_thinking

POOLED = True
WARM_UP = ("{}", '{"schema": {}}')

_JSON = frozenset({"json", "json5", "jsonc"})
"""Languages of a fence; what some of them allow besides, comments and the like, is no JSON."""
_STRICT = Draft202012Validator(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "nightlane:strict",
        "$dynamicAnchor": "meta",
        "$ref": "https://json-schema.org/draft/2020-12/schema",
        "unevaluatedProperties": False,
    }
)
"""The draft's own schema of schemas, in which an unknown word is an error at every depth."""


def verify(completion: str, expected: str) -> Verdict:
    """Reward 1 or 0.

    >>> row = '{"schema": {"type": "object", "required": ["a"]}}'
    >>> verify('{"a": 1}', row).reward
    1.0
    """
    row = read_expected(expected, "schema")
    schema = _schema(json.dumps(row["schema"]))
    text = without_thinking(completion)
    block = fenced(text, _JSON)
    answer = (text if block is None else block).strip()
    try:
        value = json.loads(answer, parse_constant=_no_json)
        fits = schema.is_valid(value)
    except (ValueError, RecursionError):
        return Verdict.unparsed(answer or None)
    except Unresolvable as error:
        raise ExpectedError(f"schema: $ref {error.ref!r} leads to nothing in it") from None
    return Verdict.of(fits and ("answer" not in row or _same(value, row["answer"])), answer)


@lru_cache(64)
def _schema(text: str) -> Draft202012Validator:
    """Raises ExpectedError for what is no schema, with the place and what is wrong there."""
    schema = json.loads(text)
    if not isinstance(schema, dict | bool):
        raise refused("a schema", schema, "an object, or true or false")
    error: SchemaError | None = min(_STRICT.iter_errors(schema), key=_depth, default=None)
    if error is not None:
        where = "".join(f".{part}" for part in error.absolute_path)
        what = error.message[:200]
        if error.validator == "unevaluatedProperties":
            what = f"has a word that the draft does not know: {what}"
        raise ExpectedError(f"schema{where}: {what}")
    return Draft202012Validator(schema, registry=Registry())


def _depth(error: SchemaError) -> int:
    """The outermost error of a nested one first: it says what is wrong, not what follows."""
    return -len(error.absolute_path)


def _no_json(name: str) -> None:
    """`NaN` and the infinities are Python's own."""
    raise ValueError(f"{name} is no JSON")


def _same(left: Any, right: Any) -> bool:
    """JSON's equality; with a stack of its own, as JSON may be nested deeper than Python calls."""
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if _is_number(one) and _is_number(other):
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
