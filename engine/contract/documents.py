"""What is read from outside: files, JSON and YAML as plain data, each within limits that are asked
before it is read.

A number is a number and a switch is `true` or `false`, as JSON and YAML 1.2 have them; `yes`,
`010`, `1:30`, `0x10` and `1_000` are text. Knows no kind and no setting.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError

MAX_CONFIG_BYTES = 256 * 1024
"""A config is written by a person; what is larger was sent by mistake."""
MAX_JSON_BYTES = 32 * 1024 * 1024
"""Of a model's or a run's JSON file: the largest index of weights that is known has half of it."""
MAX_LINE = 16 * 1024 * 1024
"""Letters of one line of a JSONL file: a row with all its tests fits."""
MAX_ROWS_BYTES = 8 * 1024**3
"""Of a JSONL file that is read to its end."""
MAX_DEPTH = 100
"""Lists and mappings inside one another, in JSON."""
MAX_DIGITS = 100
"""Of a whole number in a document: no setting takes a longer one."""
MAX_CONFIG_NODES = 200_000
"""Values of a document with every alias written out: a few lines of aliases can stand for more
than a machine holds."""


class UnreadableError(NightlaneError, OSError, ValueError):
    """What stands there is not read, and why: `is a pipe, and no regular file`.

    Also an OSError and a ValueError: readers expect the one of a file, the other of a document.
    """


# --- files ---


def opened(path: Path) -> io.BufferedReader:
    """A regular file, or a link to one, to be read; never waits for whoever writes into a pipe.

    Raises OSError, and UnreadableError for what may have no end.
    """
    _require_regular(path.stat().st_mode)
    # It can be another one by now.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _require_regular(os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """All of a regular file of at most so many bytes, whose size is asked first.

    Raises OSError, UnreadableError.
    """
    with opened(path) as stream:
        _require_size(os.fstat(stream.fileno()).st_size, most)
        data = stream.read(most + 1)
    _require_size(len(data), most)  # it may have grown, or be one that tells no size
    return data


def read_text(path: Path, most: int = MAX_JSON_BYTES) -> str:
    """The same as text. Raises OSError, UnreadableError."""
    return _decoded(read_file(path, most))


def read_stream(stream: BinaryIO, most: int) -> str:
    """The text of a stream that is open already, as standard input is. Raises UnreadableError."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise UnreadableError(f"has more than {_size(most)}, which is the most that is read")
    return _decoded(data)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")  # some editors write a mark in front
    except UnicodeDecodeError:
        raise UnreadableError("is not UTF-8 text") from None


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """A JSON document in a file. Raises OSError, UnreadableError."""
    return parse_json(read_file(path, most))


def read_json_object(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The same, which must be an object. Raises OSError, UnreadableError."""
    value = read_json(path, most)
    if not isinstance(value, dict):
        raise UnreadableError("is not a JSON object")
    return value


def lines(path: Path, most: int | None = MAX_ROWS_BYTES) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank, one after the other and none of them kept.

    `most`: bytes of the file; None where its reader stops before its end.
    Raises OSError, UnreadableError with the line in it.
    """
    with opened(path) as stream:
        if most is not None:
            _require_size(os.fstat(stream.fileno()).st_size, most)
        text = io.TextIOWrapper(stream, "utf-8-sig")
        for number in itertools.count(1):
            try:
                line = text.readline(MAX_LINE + 1)
            except UnicodeDecodeError:
                raise UnreadableError("is not UTF-8 text") from None
            if not line:
                return
            if len(line) > MAX_LINE:
                raise UnreadableError(f"line {number} has more than {_size(MAX_LINE)} in it")
            if not line.isspace():
                yield number, line.removesuffix("\n")


def byte_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of an open file, of an endless one pieces of MAX_LINE bytes without its end."""
    return iter(partial(stream.readline, MAX_LINE), b"")


def why(error: OSError) -> str:
    """What a file is, or why it cannot be read.

    >>> why(UnreadableError("is a pipe")), why(OSError(13, "Permission denied"))
    ('is a pipe', 'cannot be read: Permission denied')
    """
    if isinstance(error, UnreadableError):
        return str(error)
    return f"cannot be read: {error.strerror or error}"


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise UnreadableError(f"is {kind}, and no regular file")


def _require_size(size: int, most: int) -> None:
    if size > most:
        raise UnreadableError(f"has {_size(size)}; at most {_size(most)} are read")


def _size(count: int) -> str:
    """
    >>> _size(84_000_000), _size(999)
    ('84 MB', '999 bytes')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


# --- JSON ---


def parse_json(
    text: str | bytes,
    *,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    real: Callable[[str], Any] = float,
    constant: Callable[[str], Any] | None = None,
) -> Any:
    """A JSON document. Raises UnreadableError, also for the constants that only Python writes, for
    numbers that no machine holds, and for what is nested too deeply.

    `pairs` makes an object of its keys and values, `real` a number of what stands for one with a
    point or an exponent, `constant` something of NaN and Infinity where they may stand.

    >>> parse_json('{"answer": NaN}')
    Traceback (most recent call last):
    engine.contract.documents.UnreadableError: is not JSON (NaN stands in it)
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_constant=constant or _no_constant,
            parse_int=_whole,
            parse_float=partial(_finite, real=real),
            object_pairs_hook=pairs,
        )
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        reason = f"{error.msg} at {line}character {error.colno}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except RecursionError:
        raise UnreadableError(_TOO_DEEP) from None
    except ValueError as error:
        reason = str(error)
    else:
        if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
            raise UnreadableError(_TOO_DEEP)
        return value
    # Raised here, so that it does not hold the whole text as its context.
    raise UnreadableError(f"is not JSON ({reason})")


_TOO_DEEP = f"is nested more than {MAX_DEPTH} deep"


def _no_constant(name: str) -> float:
    # What a missing value becomes on its way through Python: as an answer, the word `nan`.
    raise ValueError(f"{name} stands in it")


def _whole(number: str) -> int:
    if len(number) > MAX_DIGITS:
        raise ValueError(too_many_digits(number))
    return int(number)


def _finite(number: str, real: Callable[[str], Any]) -> Any:
    if math.isinf(float(number)):
        shown = number if len(number) <= 40 else number[:39] + "…"
        raise ValueError(f"{shown} is larger than any number that is reckoned with")
    return real(number)


def _deeper_than(value: Any, most: int) -> bool:
    inside = [value]
    for _ in range(most):
        inside = [
            part
            for found in inside
            if isinstance(found, dict | list)
            for part in (found.values() if isinstance(found, dict) else found)
            if isinstance(part, dict | list)
        ]
        if not inside:
            return False
    return True


# --- numbers ---

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


def number_of(text: str) -> int | float | None:
    """The number that a text is, as JSON and YAML 1.2 write one in decimal; None if it is none.

    >>> number_of("30"), number_of("1e-6"), number_of("010"), number_of("1_000"), number_of("inf")
    (30, 1e-06, None, None, None)
    """
    if len(text) > MAX_DIGITS:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and not _LEADING_ZERO.fullmatch(text):
        found = float(text)
        return found if abs(found) != float("inf") else None
    return None


# --- YAML ---


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
    """YAML 1.2's core schema without its octal and hexadecimal numbers; a key given twice is an
    error.
    """

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


_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PLAIN = (
    ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("bool", re.compile("|".join((*_TRUE, *_FALSE))), list("tTfF")),
    ("int", _WHOLE, list("-+0123456789")),
    (
        "float",
        re.compile(rf"(?!{_LEADING_ZERO.pattern}$)(?:{_REAL.pattern})"),
        list("-+.0123456789"),
    ),
    ("float", _NOT_FINITE, list("-+.")),
    ("merge", re.compile(r"<<"), ["<"]),
)
"""What is more than text without a tag or quotes: kind, how it is written, its first letters."""


def _switch(_: _UniqueKeys, node: yaml.ScalarNode) -> bool:
    if node.value not in {*_TRUE, *_FALSE}:
        raise ValueError(node.value)
    return node.value in _TRUE


def _whole_number(_: _UniqueKeys, node: yaml.ScalarNode) -> int:
    if len(node.value) > MAX_DIGITS:
        raise yaml.constructor.ConstructorError(
            None, None, too_many_digits(node.value), node.start_mark
        )
    if not _WHOLE.fullmatch(node.value):
        raise ValueError(node.value)
    return int(node.value)


def _real_number(_: _UniqueKeys, node: yaml.ScalarNode) -> float:
    if _NOT_FINITE.fullmatch(node.value):
        return float(node.value.replace(".", "").lower())
    if not _REAL.fullmatch(node.value):
        raise ValueError(node.value)
    return float(node.value)


def _resolve_plain(kind: type[yaml.SafeLoader | yaml.SafeDumper]) -> None:
    for name, written, letters in _PLAIN:
        whole = re.compile(rf"(?:{written.pattern})\Z")
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", whole, letters)


_UniqueKeys.yaml_implicit_resolvers = {}  # not those of 1.1
_resolve_plain(_UniqueKeys)
_UniqueKeys.add_constructor("tag:yaml.org,2002:bool", _switch)
_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _whole_number)
_UniqueKeys.add_constructor("tag:yaml.org,2002:float", _real_number)


class _Quoting(yaml.SafeDumper):
    """Puts a text into quotes that this reader, or one of YAML 1.1, takes for something else."""


def _text(dumper: _Quoting, text: str) -> yaml.ScalarNode:
    # Between other quotes a line break of Unicode is read as a blank.
    style = '"' if _BREAKS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_resolve_plain(_Quoting)
_Quoting.add_representer(str, _text)


def dump_yaml(value: Any, *, in_one_line: bool = False) -> str:
    """Plain data as YAML that `parse_yaml` reads as the same."""
    width = 10_000 if in_one_line else 80
    text: str = yaml.dump(
        value,
        Dumper=_Quoting,
        default_flow_style=in_one_line,
        width=width,
        sort_keys=False,
        allow_unicode=True,
    )
    return text


def too_many_digits(number: str) -> str:
    """What is wrong with a whole number of more than MAX_DIGITS digits."""
    return f"a whole number has {len(number)} digits; at most {MAX_DIGITS} are read"


def _document_error(value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigProblem("(config)", value, problem, remedy)])
