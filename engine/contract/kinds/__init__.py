"""The register of job kinds: one file a kind, found by its place.

Every module in this package, and in the directories of `NIGHTLANE_KINDS_PATH` (the operator's
own kinds, separated by `:`), defines `KIND`. The config of a job passes through `validate` at
every door, so each door gives the same errors. Knows no engine: an entry is a dotted name that
only the engine process imports.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import math
import os
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from engine.contract.envelope import Envelope
from engine.contract.errors import ConfigError, ConfigProblem

__path__ = [*__path__, *filter(None, os.environ.get("NIGHTLANE_KINDS_PATH", "").split(":"))]

MAX_CONFIG_BYTES = 256 * 1024
"""A config is written by a person; what is larger was sent by mistake."""
MAX_DIGITS = 100
"""Of a whole number in a document: no setting takes a longer one."""
MAX_CONFIG_NODES = 200_000
"""Values of a document with every alias written out: a few lines of aliases can stand for more
than a machine holds."""


def _no_inputs(_: Any) -> Sequence[Path]:
    return ()


def _no_problems(_: Any) -> Sequence[ConfigProblem]:
    return ()


def _no_axes(_: Any, __: Collection[str]) -> Sequence[ConfigProblem]:
    return ()


def _no_envelope(_: Any) -> Envelope | None:
    return None


def _serves_nothing(_: Any) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """What the cockpit must know about a kind of job."""

    name: str
    summary: str
    """One sentence for menus and help."""
    config: type[BaseModel]
    entry: str
    """`package.module:function`, called in the engine process as `function(attempt)`."""
    inputs: Callable[[Any], Sequence[Path]] = _no_inputs
    """Files the job reads; each goes into job.json with size and hash."""
    indifferent: frozenset[str] = frozenset()
    """Settings, by dotted name, that cannot change the result: two jobs that differ in nothing
    else are the same experiment."""
    model: str | None = None
    """The setting, by dotted name, that says which model is run: how long a run took says nothing
    about one of another model. None where any two runs of the kind compare."""
    steps: str | None = None
    """The setting, by dotted name, that says how many steps it makes: twice as many are expected
    to take twice as long. None where only a run that began can tell."""
    check: Callable[[Any], Sequence[ConfigProblem]] = _no_problems
    """What only a look at the file system can tell; run at enqueue, must be quick."""
    cautions: Callable[[Any], Sequence[ConfigProblem]] = _no_problems
    """What a valid config had better not say; every door that takes a job in shows it."""
    sweep_cautions: Callable[[Any, Collection[str]], Sequence[ConfigProblem]] = _no_axes
    """What a sweep over some settings, by dotted name, had better not be; shown beside those."""
    envelope: Callable[[Any], Envelope | None] = _no_envelope
    """The memory it will need at most; None when that cannot be told beforehand."""
    serves: Callable[[Any], bool] = _serves_nothing
    """Whether it starts the program that serves models (`NIGHTLANE_VLLM_BIN`)."""


class UnknownKindError(ConfigError):
    """A kind nobody registered."""


@cache
def kinds() -> Mapping[str, Kind]:
    """Every registered kind by name, in alphabetical order."""
    found: dict[str, Kind] = {}
    for module_info in pkgutil.iter_modules(__path__):
        kind = importlib.import_module(f"{__name__}.{module_info.name}").KIND
        found[kind.name] = kind
    return types.MappingProxyType(dict(sorted(found.items())))


def get_kind(name: str) -> Kind:
    """Raises UnknownKindError with the nearest name."""
    try:
        return kinds()[name]
    except KeyError:
        problem = ConfigProblem("kind", name, "is not a kind of job", _nearest(name, list(kinds())))
        raise UnknownKindError([problem]) from None


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


def validate(kind_name: str, raw: Mapping[str, Any]) -> BaseModel:
    """The one validation path: raw data → a config that can run on this machine.

    Raises UnknownKindError or ConfigError with every problem found.
    """
    kind = get_kind(kind_name)
    unwritable = text_problems(raw)
    if unwritable:
        raise ConfigError(unwritable)
    try:
        config = kind.config.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, kind.config)) from error
    found = kind.check(config)
    if found:
        raise ConfigError(found)
    return config


def cautions(kind_name: str, raw: Mapping[str, Any]) -> Sequence[ConfigProblem]:
    """What a config that `validate` accepts had better not say."""
    kind = get_kind(kind_name)
    return kind.cautions(kind.config.model_validate(dict(raw)))


def sweep_cautions(
    kind_name: str, raw: Mapping[str, Any], axes: Collection[str]
) -> Sequence[ConfigProblem]:
    """What a sweep over these settings had better not say; `raw`: the config of any point of it."""
    kind = get_kind(kind_name)
    return kind.sweep_cautions(kind.config.model_validate(dict(raw)), axes)


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
        return ConfigProblem(field, None, "is not a setting", _nearest(loc[-1], known))
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


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if known else "remove it"


def _document_error(value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem("(config)", value, problem, remedy)])
