"""Config documents: YAML as plain data, within limits that a hand-written config never reaches.

Knows no kind and no setting.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from engine.contract.errors import ConfigError, ConfigProblem

MAX_CONFIG_BYTES = 256 * 1024
"""A config is written by a person; what is larger was sent by mistake."""
MAX_DIGITS = 100
"""Of a whole number in a document: no setting takes a longer one."""
MAX_CONFIG_NODES = 200_000
"""Values of a document with every alias written out: a few lines of aliases can stand for more
than a machine holds."""


def parse_yaml(text: str) -> dict[str, Any]:
    """A config document as plain data. Raises ConfigError with line and column."""
    if len(text.encode()) > MAX_CONFIG_BYTES:
        raise _document_error(
            f"{len(text.encode())} bytes",
            "is too large for a config",
            f"keep it under {MAX_CONFIG_BYTES} bytes and name data by path",
        )
    try:
        value = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _document_error(
            None, f"is not valid YAML{where}: {error.problem}", "correct that line"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _document_error(None, f"is not valid YAML: {reason}", "correct it") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _document_error(
            type(value).__name__, "is not a mapping", "write one `key: value` a line"
        )
    if _larger_than(value, MAX_CONFIG_NODES):
        raise _document_error(
            None, "has too many values behind its aliases", "write them out, or name data by path"
        )
    for found in _values_in(value):
        for key in found if isinstance(found, Mapping) else ():
            if not isinstance(key, str):
                raise _document_error(
                    str(key), "has a key that is no text", "write the name of a setting"
                )
    return value


def _larger_than(value: Any, most: int) -> bool:
    """Whether plain data, every alias written out, has more than `most` values."""
    return any(True for _ in itertools.islice(_values_in(value), most, None))


def _values_in(value: Any) -> Iterator[Any]:
    """Plain data and every value inside it, every alias written out."""
    todo = [value]
    while todo:
        found = todo.pop()
        yield found
        if isinstance(found, Mapping):
            todo += found.values()
        elif isinstance(found, list | tuple | set):
            todo += found


class _UniqueKeys(yaml.SafeLoader):
    """YAML as people mean it: a key given twice is an error, and `1e-6` is a number."""

    _merged = 0

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """What a tag promises and its text does not hold, the library meets unprepared."""
        try:
            return super().construct_object(node, deep=deep)
        except (LookupError, ValueError, AttributeError, TypeError, ArithmeticError) as error:
            kind = node.tag.rpartition(":")[2]
            shown = repr(node.value) if isinstance(node.value, str) else "this"
            shown = shown if len(shown) <= 80 else shown[:77] + "…"
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown} cannot be read as {kind}", node.start_mark
            ) from error

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge keys write out what they name: counted before that, for it can be any amount."""
        for key_node, value_node in node.value:
            if key_node.tag != "tag:yaml.org,2002:merge":
                continue
            named = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for mapping in named:
                if isinstance(mapping, yaml.MappingNode):
                    self.flatten_mapping(mapping)
                    self._merged += len(mapping.value)
                    if self._merged > MAX_CONFIG_NODES:
                        raise yaml.constructor.ConstructorError(
                            None, None, "too many values behind merge keys", key_node.start_mark
                        )
        super().flatten_mapping(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            if isinstance(key, str | int | float | bool):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _whole_number(loader: _UniqueKeys, node: yaml.ScalarNode) -> int:
    if len(node.value) > MAX_DIGITS:
        raise yaml.constructor.ConstructorError(
            None, None, too_many_digits(node.value), node.start_mark
        )
    return loader.construct_yaml_int(node)


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _whole_number)
_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def too_many_digits(number: str) -> str:
    """What is wrong with a whole number of more than MAX_DIGITS digits."""
    return f"a whole number has {len(number)} digits; at most {MAX_DIGITS} are read"


def _document_error(value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem("(config)", value, problem, remedy)])
