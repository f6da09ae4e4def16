"""A form for any kind: made from its JSON schema, read back as the raw config it stands for.

An empty field means the default and is not sent. What cannot be read as its type stays as it was
typed, so that the one validation path names it. Knows no kind by name, and validates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.forms.schema import Section, Setting, defaults, flattened, leaves, schema_of, sections
from engine.contract.documents import dump_yaml, parse_yaml
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kind import Kind

PREFIX = "set:"
"""Before the name of a setting, so that no setting collides with the form's own fields."""
SWITCH = "with:"
"""Before the name of an optional section: its box is ticked."""


@dataclass(frozen=True)
class Field:
    """One setting with what was typed and what is wrong with it."""

    setting: Setting
    typed: str
    problems: Sequence[ConfigProblem]


@dataclass(frozen=True)
class Group:
    """The settings of one section; the first group is the top level."""

    section: Section | None
    fields: Sequence[Field]
    problems: Sequence[ConfigProblem]
    """About the section as a whole."""
    used: bool


@dataclass(frozen=True)
class Form:
    """All that the page shows."""

    kind: Kind
    groups: Sequence[Group]
    problems: Sequence[ConfigProblem]
    """What belongs to no field that the form shows."""


def build(kind: Kind, typed: Mapping[str, str], problems: Sequence[ConfigProblem] = ()) -> Form:
    """The form of a kind, with the answers so far and each problem beside its field."""
    schema = schema_of(kind.config)
    leaves = flattened(schema)
    places = sections(schema)
    by_field: dict[str, list[ConfigProblem]] = {}
    for problem in problems:
        by_field.setdefault(problem.field, []).append(problem)
    groups = [_group(place, leaves, typed, by_field) for place in (None, *places)]
    shown = {leaf.name for leaf in leaves} | {place.name for place in places}
    rest = [problem for problem in problems if problem.field not in shown]
    return Form(kind, groups, rest)


def _group(
    place: Section | None,
    leaves: Sequence[Setting],
    typed: Mapping[str, str],
    by_field: Mapping[str, Sequence[ConfigProblem]],
) -> Group:
    name = place.name if place else ""
    fields = [
        Field(leaf, typed.get(PREFIX + leaf.name, ""), by_field.get(leaf.name, ()))
        for leaf in leaves
        if leaf.section == name
    ]
    # What must be given stands first; the rest keeps the order of its file.
    fields.sort(key=lambda field: not field.setting.required)
    used = SWITCH + name in typed or any(field.typed or field.problems for field in fields)
    return Group(place, fields, by_field.get(name, ()) if name else (), used)


def raw_config(kind: Kind, typed: Mapping[str, str]) -> dict[str, Any]:
    """What the answers say, as a config document."""
    schema = schema_of(kind.config)
    raw: dict[str, Any] = {}
    for place in sections(schema):
        if SWITCH + place.name in typed:
            _put(raw, place.name, {})
    for leaf in flattened(schema):
        text = typed.get(PREFIX + leaf.name, "").strip()
        if text:
            _put(raw, leaf.name, _value(leaf, text))
    return raw


class Retyped(NamedTuple):
    """A config document as the answers of a form."""

    typed: dict[str, str]
    unshown: list[str]
    """What of it the form has no field for, by dotted name."""


def retyped(kind: Kind, raw: Mapping[str, Any]) -> Retyped:
    """The other way round: `raw_config(kind, retyped(kind, raw).typed)` is `raw` again."""
    schema = schema_of(kind.config)
    given = leaves(raw)
    known = defaults(schema)
    # A null that is the default anyway says nothing.
    given = {
        name: value for name, value in given.items() if value is not None or known.get(name, 0)
    }
    typed = {
        PREFIX + leaf.name: _text(leaf, given[leaf.name])
        for leaf in flattened(schema)
        if leaf.name in given
    }
    for place in sections(schema):
        if place.optional and any(f"{name}.".startswith(f"{place.name}.") for name in given):
            typed[SWITCH + place.name] = "on"
    again = leaves(raw_config(kind, typed))
    unshown = [name for name, value in given.items() if name not in again or again[name] != value]
    # Leaving an empty section out changes no config.
    return Retyped(typed, [name for name in unshown if given[name] != {}])


def _text(leaf: Setting, value: Any) -> str:
    if leaf.type == "string" and isinstance(value, str):
        return value
    dumped = dump_yaml(value, in_one_line=True)
    return dumped.removesuffix("\n").removesuffix("...").strip()


def _put(raw: dict[str, Any], dotted: str, value: Any) -> None:
    *path, last = dotted.split(".")
    for part in path:
        raw = raw.setdefault(part, {})
    raw[last] = value


def _value(leaf: Setting, text: str) -> Any:
    """Text as text; anything else as YAML reads it."""
    if leaf.type == "string":
        return text
    try:
        return parse_yaml(f"value: {text}").get("value")
    except ConfigError:
        return text
